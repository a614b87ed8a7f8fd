"""LLVM's assembly of a team: threads that share the parts of a job without Python's lock; core/team.py calls it.

`void entry(i64 what, i64 number, ptr data, ptr control)`: with `what` 0, helper `number` waits for jobs until the team
ends. Else it does a job of loops (1), of matrix products (2), of copies (3) or of primitives (4). The lower half of
`number` counts the job's parts. The upper half counts the helpers that may join. `control` is the team's memory, `data`
the job's.

A job is one word, its ticket: the parts that nobody has taken, and the helpers that may join. A thread takes a part by
exchanging the ticket for one less. It reads the job's other facts after that. They cannot change then, since the job
lasts until its last part is done.
"""

from __future__ import annotations

import platform
import sys

from gradwire_engine.compile.fusion.kernel_cache import KERNELS, available
from gradwire_engine.core.team import Team
from gradwire_engine.core.threads import POOL

#: Instructions that let a core rest in a loop that waits: a call and its declaration.
_ON_X86 = "call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"
_ON_ARM = "call void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)"
_RESTS = {"x86_64": _ON_X86, "AMD64": _ON_X86, "aarch64": _ON_ARM, "arm64": _ON_ARM}


def make_team() -> bool:
    """Give the pool a team when its code is compiled or read. False: it could not be queued, so ask again later."""
    if not available() or sys.platform != "linux":
        return True

    def build() -> None:
        if POOL.team is not None:  # several threads asked for it
            return
        kernel = KERNELS.built(_team_code())
        if kernel.entry is not None:
            POOL.team = Team(kernel.entry, kernel)

    return KERNELS.hurry(build)


def _team_code() -> str:
    """The module."""
    call, declaration = _RESTS.get(platform.machine(), ("", ""))
    return f"{_CODE.replace('REST', call)}{declaration}\n"


_CODE = """
define void @entry(i64 %what, i64 %number, ptr %data, ptr %control) #0 {
  %helps = icmp eq i64 %what, 0
  br i1 %helps, label %help, label %work
help:
  call void @help(i64 %number, ptr %control)
  ret void
work:
  %count = and i64 %number, 4294967295
  %helpers = lshr i64 %number, 32
  call void @share(i64 %what, i64 %count, i64 %helpers, ptr %data, ptr %control)
  ret void
}

; One part of a job.
define internal void @part(i64 %what, ptr %data, i64 %place, i64 %lane) #0 {
  switch i64 %what, label %product [ i64 1, label %loop
                                     i64 3, label %copy
                                     i64 4, label %primitive ]
primitive:
  call void @primitive_part(ptr %data, i64 %place, i64 %lane)
  ret void
copy:
  call void @copy_part(ptr %data, i64 %place)
  ret void
loop:
  call void @loop_part(ptr %data, i64 %place, i64 %lane)
  ret void
product:
  call void @product_part(ptr %data, i64 %place)
  ret void
}

; Rows of a loop. data: entry, end, rows of a part, table, first scratch memory, its bytes per lane.
define internal void @loop_part(ptr %data, i64 %place, i64 %lane) #0 {
  %entry = load ptr, ptr %data
  %p1 = getelementptr i64, ptr %data, i64 1
  %end = load i64, ptr %p1
  %p2 = getelementptr i64, ptr %data, i64 2
  %step = load i64, ptr %p2
  %p3 = getelementptr i64, ptr %data, i64 3
  %table = load ptr, ptr %p3
  %p4 = getelementptr i64, ptr %data, i64 4
  %start = load ptr, ptr %p4
  %p5 = getelementptr i64, ptr %data, i64 5
  %bytes = load i64, ptr %p5
  %begin = mul i64 %place, %step
  %next = add i64 %begin, %step
  %some = icmp slt i64 %next, %end
  %last = select i1 %some, i64 %next, i64 %end
  %offset = mul i64 %lane, %bytes
  %scratch = getelementptr i8, ptr %start, i64 %offset
  call void %entry(i64 %begin, i64 %last, ptr %scratch, ptr %table)
  ret void
}

; Bytes to copy. data: memcpy, target, source, bytes, bytes of a part.
define internal void @copy_part(ptr %data, i64 %place) #0 {
  %copy = load ptr, ptr %data
  %c1 = getelementptr i64, ptr %data, i64 1
  %target = load ptr, ptr %c1
  %c2 = getelementptr i64, ptr %data, i64 2
  %source = load ptr, ptr %c2
  %c3 = getelementptr i64, ptr %data, i64 3
  %bytes = load i64, ptr %c3
  %c4 = getelementptr i64, ptr %data, i64 4
  %step = load i64, ptr %c4
  %offset = mul i64 %place, %step
  %rest = sub i64 %bytes, %offset
  %whole = icmp sgt i64 %rest, %step
  %count = select i1 %whole, i64 %step, i64 %rest
  %to = getelementptr i8, ptr %target, i64 %offset
  %from = getelementptr i8, ptr %source, i64 %offset
  %made = call ptr %copy(ptr %to, ptr %from, i64 %count)
  ret void
}

; Products of matrices at equal distances. data: sgemm, omp_set_num_threads, first failure, factors of the product and
; of the result, 16 numbers for each part.
; Without omp_set_num_threads, sgemm is cblas_sgemm, which has other arguments and no status.
define internal void @product_part(ptr %data, i64 %place) #0 {
start:
  %sgemm = load ptr, ptr %data
  %a.threads = getelementptr i64, ptr %data, i64 1
  %threads = load ptr, ptr %a.threads
  %a.failure = getelementptr i64, ptr %data, i64 2
  %a.alpha = getelementptr double, ptr %data, i64 3
  %alpha.wide = load double, ptr %a.alpha
  %alpha = fptrunc double %alpha.wide to float
  %a.beta = getelementptr double, ptr %data, i64 4
  %beta.wide = load double, ptr %a.beta
  %beta = fptrunc double %beta.wide to float
  %before = mul i64 %place, 16
  %shift = add i64 %before, 5
  %record = getelementptr i64, ptr %data, i64 %shift
  %r0 = getelementptr i64, ptr %record, i64 0
  %order = load i8, ptr %r0
  %r1 = getelementptr i64, ptr %record, i64 1
  %other.order = load i8, ptr %r1
  %r2 = getelementptr i64, ptr %record, i64 2
  %rows = load i64, ptr %r2
  %r3 = getelementptr i64, ptr %record, i64 3
  %columns = load i64, ptr %r3
  %r4 = getelementptr i64, ptr %record, i64 4
  %inner = load i64, ptr %r4
  %r5 = getelementptr i64, ptr %record, i64 5
  %one = load ptr, ptr %r5
  %r6 = getelementptr i64, ptr %record, i64 6
  %one.leading = load i64, ptr %r6
  %r7 = getelementptr i64, ptr %record, i64 7
  %other = load ptr, ptr %r7
  %r8 = getelementptr i64, ptr %record, i64 8
  %other.leading = load i64, ptr %r8
  %r9 = getelementptr i64, ptr %record, i64 9
  %result = load ptr, ptr %r9
  %r10 = getelementptr i64, ptr %record, i64 10
  %leading = load i64, ptr %r10
  %r11 = getelementptr i64, ptr %record, i64 11
  %repeats = load i64, ptr %r11
  %r12 = getelementptr i64, ptr %record, i64 12
  %one.stride = load i64, ptr %r12
  %r13 = getelementptr i64, ptr %record, i64 13
  %other.stride = load i64, ptr %r13
  %r14 = getelementptr i64, ptr %record, i64 14
  %stride = load i64, ptr %r14
  %r15 = getelementptr i64, ptr %record, i64 15
  %bias = load ptr, ptr %r15
  %plain = icmp eq ptr %bias, null
  %by.cblas = icmp eq ptr %threads, null
  %is.turned = icmp eq i8 %order, 84
  %turn = select i1 %is.turned, i32 112, i32 111
  %is.other.turned = icmp eq i8 %other.order, 84
  %other.turn = select i1 %is.other.turned, i32 112, i32 111
  br i1 %by.cblas, label %next, label %one.thread
one.thread:
  call void %threads(i32 1)
  br label %next
next:
  %done = phi i64 [ 0, %start ], [ 0, %one.thread ], [ %done.next, %end ]
  %a.offset = mul i64 %done, %one.stride
  %a = getelementptr i8, ptr %one, i64 %a.offset
  %b.offset = mul i64 %done, %other.stride
  %b = getelementptr i8, ptr %other, i64 %b.offset
  %c.offset = mul i64 %done, %stride
  %c = getelementptr i8, ptr %result, i64 %c.offset
  br i1 %by.cblas, label %cblas, label %onednn
cblas:
  call void %sgemm(i32 101, i32 %turn, i32 %other.turn, i64 %rows, i64 %columns, i64 %inner,
    float %alpha, ptr %a, i64 %one.leading, ptr %b, i64 %other.leading, float %beta, ptr %c, i64 %leading)
  br label %rest
onednn:
  %status = call i32 %sgemm(i8 signext %order, i8 signext %other.order, i64 %rows, i64 %columns, i64 %inner,
    float %alpha, ptr %a, i64 %one.leading, ptr %b, i64 %other.leading, float %beta, ptr %c, i64 %leading)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %note, label %rest
note:
  %wide = zext i32 %status to i64
  store atomic i64 %wide, ptr %a.failure monotonic, align 8
  br label %rest
rest:
  br i1 %plain, label %end, label %biased
biased:
  call void @add_row(ptr noalias %c, i64 %rows, i64 %columns, i64 %leading, ptr noalias %bias)
  br label %end
end:
  %done.next = add i64 %done, 1
  %more = icmp slt i64 %done.next, %repeats
  br i1 %more, label %next, label %leave
leave:
  ret void
}

; Calls of oneDNN's primitives. data: 10 numbers (core/primitive_parts.py), then a record for each part: its program's
; number, and the addresses of its operands. Each lane has its own programs. A program has three numbers, then the
; memory objects of so many operands, so many pairs of a memory object and its place in the lane's room, and so many
; calls: a primitive, how many arguments, and where they are.
define internal void @primitive_part(ptr %data, i64 %place, i64 %lane) #0 {
start:
  %threads = load ptr, ptr %data
  %d1 = getelementptr i64, ptr %data, i64 1
  %point = load ptr, ptr %d1
  %d2 = getelementptr i64, ptr %data, i64 2
  %execute = load ptr, ptr %d2
  %d3 = getelementptr i64, ptr %data, i64 3
  %stream = load ptr, ptr %d3
  %a.failure = getelementptr i64, ptr %data, i64 4
  %d5 = getelementptr i64, ptr %data, i64 5
  %programs = load ptr, ptr %d5
  %d6 = getelementptr i64, ptr %data, i64 6
  %kinds = load i64, ptr %d6
  %d7 = getelementptr i64, ptr %data, i64 7
  %words = load i64, ptr %d7
  %d8 = getelementptr i64, ptr %data, i64 8
  %rooms = load ptr, ptr %d8
  %d9 = getelementptr i64, ptr %data, i64 9
  %bytes = load i64, ptr %d9
  %before = mul i64 %place, %words
  %shift = add i64 %before, 10
  %record = getelementptr i64, ptr %data, i64 %shift
  %kind = load i64, ptr %record
  %addresses = getelementptr i64, ptr %record, i64 1
  %row = mul i64 %lane, %kinds
  %at = add i64 %row, %kind
  %a.program = getelementptr ptr, ptr %programs, i64 %at
  %program = load ptr, ptr %a.program
  %offset = mul i64 %lane, %bytes
  %room = getelementptr i8, ptr %rooms, i64 %offset
  %operands = load i64, ptr %program
  %p1 = getelementptr i64, ptr %program, i64 1
  %places = load i64, ptr %p1
  %p2 = getelementptr i64, ptr %program, i64 2
  %calls = load i64, ptr %p2
  %first.operand = getelementptr i64, ptr %program, i64 3
  %first.place = getelementptr i64, ptr %first.operand, i64 %operands
  %place.words = mul i64 %places, 2
  %first.call = getelementptr i64, ptr %first.place, i64 %place.words
  call void %threads(i32 1)
  br label %operand.look
operand.look:
  %i = phi i64 [ 0, %start ], [ %i.next, %operand ]
  %more.operands = icmp slt i64 %i, %operands
  br i1 %more.operands, label %operand, label %place.look
operand:
  %a.memory = getelementptr ptr, ptr %first.operand, i64 %i
  %memory = load ptr, ptr %a.memory
  %a.address = getelementptr ptr, ptr %addresses, i64 %i
  %address = load ptr, ptr %a.address
  %pointed = call i32 %point(ptr %memory, ptr %address)
  %i.next = add i64 %i, 1
  br label %operand.look
place.look:
  %j = phi i64 [ 0, %operand.look ], [ %j.next, %roomy ]
  %more.places = icmp slt i64 %j, %places
  br i1 %more.places, label %roomy, label %call.look
roomy:
  %j.words = mul i64 %j, 2
  %a.held = getelementptr ptr, ptr %first.place, i64 %j.words
  %held = load ptr, ptr %a.held
  %a.begin = getelementptr i64, ptr %a.held, i64 1
  %begin = load i64, ptr %a.begin
  %inside = getelementptr i8, ptr %room, i64 %begin
  %placed = call i32 %point(ptr %held, ptr %inside)
  %j.next = add i64 %j, 1
  br label %place.look
call.look:
  %k = phi i64 [ 0, %place.look ], [ %k.next, %call.end ]
  %more.calls = icmp slt i64 %k, %calls
  br i1 %more.calls, label %run, label %leave
run:
  %k.words = mul i64 %k, 3
  %a.primitive = getelementptr ptr, ptr %first.call, i64 %k.words
  %primitive = load ptr, ptr %a.primitive
  %a.count = getelementptr i64, ptr %a.primitive, i64 1
  %count.wide = load i64, ptr %a.count
  %count = trunc i64 %count.wide to i32
  %a.arguments = getelementptr ptr, ptr %a.primitive, i64 2
  %arguments = load ptr, ptr %a.arguments
  %status = call i32 %execute(ptr %primitive, ptr %stream, i32 %count, ptr %arguments)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %note, label %call.end
note:
  %wide = zext i32 %status to i64
  store atomic i64 %wide, ptr %a.failure monotonic, align 8
  br label %call.end
call.end:
  %k.next = add i64 %k, 1
  br label %call.look
leave:
  ret void
}

; Add a row to each row of a matrix, which is still in the core's cache.
define internal void @add_row(ptr noalias %matrix, i64 %rows, i64 %columns, i64 %leading, ptr noalias %bias) #0 {
start:
  br label %row
row:
  %i = phi i64 [ 0, %start ], [ %i.next, %row.end ]
  %before = mul i64 %i, %leading
  %begin = getelementptr float, ptr %matrix, i64 %before
  br label %column
column:
  %j = phi i64 [ 0, %row ], [ %j.next, %column ]
  %a = getelementptr float, ptr %begin, i64 %j
  %b = getelementptr float, ptr %bias, i64 %j
  %x = load float, ptr %a
  %y = load float, ptr %b
  %sum = fadd float %x, %y
  store float %sum, ptr %a
  %j.next = add i64 %j, 1
  %more.columns = icmp slt i64 %j.next, %columns
  br i1 %more.columns, label %column, label %row.end
row.end:
  %i.next = add i64 %i, 1
  %more.rows = icmp slt i64 %i.next, %rows
  br i1 %more.rows, label %row, label %leave
leave:
  ret void
}

; Take a part and do it, if there is one for this lane.
define internal i1 @take(ptr %control, i64 %lane) #0 {
  br label %look
look:
  %ticket = load atomic i64, ptr %control acquire, align 64
  %left = and i64 %ticket, 4294967295
  %helpers = lshr i64 %ticket, 32
  %some = icmp ne i64 %left, 0
  %mine = icmp ule i64 %lane, %helpers
  %free = and i1 %some, %mine
  br i1 %free, label %try, label %none
try:
  %less = sub i64 %ticket, 1
  %pair = cmpxchg ptr %control, i64 %ticket, i64 %less acq_rel monotonic, align 64
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %do, label %look
do:
  %a.what = getelementptr i64, ptr %control, i64 32
  %what = load i64, ptr %a.what
  %a.data = getelementptr i64, ptr %control, i64 33
  %data = load ptr, ptr %a.data
  %a.count = getelementptr i64, ptr %control, i64 34
  %count = load i64, ptr %a.count
  %place = sub i64 %count, %left
  call void @part(i64 %what, ptr %data, i64 %place, i64 %lane)
  %a.pending = getelementptr i64, ptr %control, i64 8
  %before = atomicrmw sub ptr %a.pending, i64 1 release, align 64
  ret i1 true
none:
  ret i1 false
}

; Nanoseconds since some moment.
define internal i64 @now(ptr %control) #0 {
  %time = alloca [2 x i64], align 16
  %a.clock = getelementptr i64, ptr %control, i64 41
  %clock = load ptr, ptr %a.clock
  %status = call i32 %clock(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %a.rest = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %a.rest
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}

; Wait for jobs in a loop for some time after the last one, then asleep, until the team ends.
define internal void @help(i64 %lane, ptr %control) #0 {
start:
  %a.ends = getelementptr i64, ptr %control, i64 24
  %a.patience = getelementptr i64, ptr %control, i64 40
  %patience = load i64, ptr %a.patience
  %a.wait = getelementptr i64, ptr %control, i64 42
  %wait = load ptr, ptr %a.wait
  %a.yield = getelementptr i64, ptr %control, i64 44
  %yield = load ptr, ptr %a.yield
  %own = mul i64 %lane, 8
  %slot = add i64 %own, 64
  %asleep = getelementptr i64, ptr %control, i64 %slot
  %semaphore = getelementptr i64, ptr %asleep, i64 2
  br label %fresh
fresh:
  %since = call i64 @now(ptr %control)
  br label %look
look:
  %turn = phi i64 [ 0, %fresh ], [ %turn.next, %rest ]
  %took = call i1 @take(ptr %control, i64 %lane)
  br i1 %took, label %fresh, label %idle
idle:
  %ends = load atomic i64, ptr %a.ends acquire, align 64
  %over = icmp ne i64 %ends, 0
  br i1 %over, label %leave, label %wait.more
wait.more:
  %turn.next = add i64 %turn, 1
  %masked = and i64 %turn.next, 63
  %asks = icmp eq i64 %masked, 0
  br i1 %asks, label %ask, label %rest
ask:
  %yielded = call i32 %yield()
  %now = call i64 @now(ptr %control)
  %gone = sub i64 %now, %since
  %tired = icmp sgt i64 %gone, %patience
  br i1 %tired, label %sleep, label %rest
rest:
  REST
  br label %look
sleep:
  store atomic i64 1, ptr %asleep seq_cst, align 64
  %ticket = load atomic i64, ptr %control seq_cst, align 64
  %left = and i64 %ticket, 4294967295
  %helpers = lshr i64 %ticket, 32
  %some = icmp ne i64 %left, 0
  %mine = icmp ule i64 %lane, %helpers
  %free = and i1 %some, %mine
  %ends.now = load atomic i64, ptr %a.ends seq_cst, align 64
  %over.now = icmp ne i64 %ends.now, 0
  %stays = or i1 %free, %over.now
  br i1 %stays, label %rise, label %wait.asleep
rise:
  %pair = cmpxchg ptr %asleep, i64 1, i64 0 seq_cst seq_cst, align 64
  %woke = extractvalue { i64, i1 } %pair, 1
  br i1 %woke, label %fresh, label %wait.asleep
wait.asleep:
  %status = call i32 %wait(ptr %semaphore)
  %again = icmp ne i32 %status, 0
  br i1 %again, label %wait.asleep, label %fresh
leave:
  ret void
}

; Do a job with the helpers that may join; alone if none may, or if the team has another job.
define internal void @share(i64 %what, i64 %count, i64 %helpers, ptr %data, ptr %control) #0 {
start:
  %single = icmp eq i64 %helpers, 0
  br i1 %single, label %alone, label %claim.team
claim.team:
  %a.busy = getelementptr i64, ptr %control, i64 16
  %pair = cmpxchg ptr %a.busy, i64 0, i64 1 acquire monotonic, align 64
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %post, label %alone
alone:
  %place = phi i64 [ 0, %start ], [ 0, %claim.team ], [ %place.next, %alone ]
  call void @part(i64 %what, ptr %data, i64 %place, i64 0)
  %place.next = add i64 %place, 1
  %more = icmp ult i64 %place.next, %count
  br i1 %more, label %alone, label %leave
post:
  %a.what = getelementptr i64, ptr %control, i64 32
  store i64 %what, ptr %a.what
  %a.data = getelementptr i64, ptr %control, i64 33
  store ptr %data, ptr %a.data
  %a.count = getelementptr i64, ptr %control, i64 34
  store i64 %count, ptr %a.count
  %a.pending = getelementptr i64, ptr %control, i64 8
  store atomic i64 %count, ptr %a.pending monotonic, align 64
  %upper = shl i64 %helpers, 32
  %ticket = or i64 %upper, %count
  store atomic i64 %ticket, ptr %control seq_cst, align 64
  %a.post = getelementptr i64, ptr %control, i64 43
  %wake = load ptr, ptr %a.post
  %a.yield = getelementptr i64, ptr %control, i64 44
  %yield = load ptr, ptr %a.yield
  br label %lanes
lanes:
  %lane = phi i64 [ 1, %post ], [ %lane.next, %lanes.next ]
  %in = icmp ule i64 %lane, %helpers
  br i1 %in, label %look.asleep, label %work
look.asleep:
  %own = mul i64 %lane, 8
  %slot = add i64 %own, 64
  %asleep = getelementptr i64, ptr %control, i64 %slot
  %state = load atomic i64, ptr %asleep seq_cst, align 64
  %sleeps = icmp eq i64 %state, 1
  br i1 %sleeps, label %claim, label %lanes.next
claim:
  %claimed = cmpxchg ptr %asleep, i64 1, i64 0 seq_cst seq_cst, align 64
  %first = extractvalue { i64, i1 } %claimed, 1
  br i1 %first, label %wake.up, label %lanes.next
wake.up:
  %semaphore = getelementptr i64, ptr %asleep, i64 2
  %posted = call i32 %wake(ptr %semaphore)
  br label %lanes.next
lanes.next:
  %lane.next = add i64 %lane, 1
  br label %lanes
work:
  %took = call i1 @take(ptr %control, i64 0)
  br i1 %took, label %work, label %wait
wait:
  %turn = phi i64 [ 0, %work ], [ %turn.next, %wait.more ]
  %pending = load atomic i64, ptr %a.pending acquire, align 64
  %done = icmp eq i64 %pending, 0
  br i1 %done, label %free, label %wait.on
wait.on:
  %turn.next = add i64 %turn, 1
  %long = icmp ugt i64 %turn.next, 20000
  br i1 %long, label %wait.yield, label %wait.rest
wait.yield:
  %yielded = call i32 %yield()
  br label %wait.more
wait.rest:
  REST
  br label %wait.more
wait.more:
  br label %wait
free:
  store atomic i64 0, ptr %a.busy release, align 64
  br label %leave
leave:
  ret void
}

attributes #0 = { nounwind }
"""
