package backtest

// book tells what a release at a time comes to, by the samples of its resource. The
// times asked for do not go back.
type book struct {
	cursor
	t       *trace
	index   int
	started bool
}

func (t *trace) book(index int) *book {
	return &book{cursor: t.tracks[index].cursor(t.step), t: t, index: index}
}

// seek moves to the newest sample at or before a time, and returns how many of its
// run follow and how much of its own step is left at that time. ok is false before
// the first sample.
func (b *book) seek(at int64) (follow, left int64, ok bool) {
	for {
		start, more := b.peek()
		if !more || start > at {
			break
		}
		b.started = b.advance()
	}
	if !b.started {
		return 0, 0, false
	}
	nth := min((at-b.run.start)/b.step, b.run.count-1)
	return b.run.count - 1 - nth, b.step - min(b.step, at-b.run.start-nth*b.step), true
}

// rest counts a release until the end of the stretch.
func (b *book) rest(at int64, out *outcome) {
	follow, left, ok := b.seek(at)
	if !ok || !b.run.idle {
		return
	}
	length, busy := left+follow*b.step, false
	ahead := b.cursor
	for ahead.advance() {
		if ahead.run.gap || !ahead.run.idle {
			busy = !ahead.run.gap
			break
		}
		length += ahead.run.count * b.step
	}
	if length > 0 {
		out.by[b.index].release(length, busy, b.t.restart, 1)
		out.releases.add(b.index, at, at+length)
	}
}

// whole counts a release until the next busy sample, as of a dead man's switch. Time
// that was not sampled is not counted as released.
func (b *book) whole(at int64, out *outcome) {
	follow, left, ok := b.seek(at)
	if !ok {
		return
	}
	by := &out.by[b.index]
	add := func(from, length int64) {
		by.released += length
		out.releases.add(b.index, from, from+length)
	}
	restart := func(wake int64) {
		by.restarts++
		if wake-at <= b.t.restart {
			by.cutShort++
		}
	}
	add(at, left)
	if follow > 0 && !b.run.idle {
		restart(at + left)
		return
	}
	add(at+left, follow*b.step)
	for ahead := b.cursor; ahead.advance(); {
		if !ahead.run.idle {
			restart(ahead.run.start)
			return
		}
		add(ahead.run.start, ahead.run.count*b.step)
	}
}
