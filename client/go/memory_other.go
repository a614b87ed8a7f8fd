//go:build !linux

package gradwire

func preferHugePages([]byte) {}
