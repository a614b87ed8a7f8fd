"""Kernels by array module: functions of a plan that write into existing memory."""
