package cli

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/round"
)

// progress shows the progress of a command: a bar if it counts, else after two seconds a line with
// the elapsed time. It draws only on a terminal, and nothing once the output has begun.
type progress struct {
	mu   sync.Mutex
	to   io.Writer
	what string
	// bar is the bar that is drawn; nil if there is none.
	bar *progressbar.ProgressBar
	// drawn is true if the line is on the terminal, over that output has begun.
	drawn, over bool
}

// workedFor is how long a command works before a line says so.
const workedFor = 2 * time.Second

// watch draws the line until ctx ends.
func (p *progress) watch(ctx context.Context) {
	start := time.Now()
	tick := time.NewTicker(workedFor / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			p.clear(true)
			return
		case now := <-tick.C:
			p.mu.Lock()
			if worked := now.Sub(start); worked >= workedFor && p.bar == nil && !p.over {
				p.drawn = true
				plain.Fprintf(p.to, "\r%s: working for %s\x1b[K", p.what, plain.Duration(worked.Truncate(time.Second)))
			}
			p.mu.Unlock()
		}
	}
}

// clear takes the line off the terminal; over says that it does not come back.
func (p *progress) clear(over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = p.over || over
	if p.drawn {
		p.drawn = false
		_, _ = io.WriteString(p.to, "\r\x1b[K") // a courtesy, as the line is
	}
}

// before is a writer that takes the line off the terminal first.
type before struct {
	io.Writer
	p    *progress
	over bool
}

// Write implements io.Writer.
func (b before) Write(text []byte) (int, error) {
	b.p.clear(b.over)
	return b.Writer.Write(text)
}

// newProgress begins a bar.
func (a *app) newProgress(what string) runtime.Bar {
	if !a.Progress || a.quiet {
		return &bar{}
	}
	a.progress.clear(false)
	b := progressbar.NewOptions(1,
		progressbar.OptionSetWriter(a.progress.to),
		progressbar.OptionSetDescription("reading "+plain.Line(what)),
		progressbar.OptionSetWidth(28),
		progressbar.OptionShowCount(),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetPredictTime(false),
	)
	a.progress.mu.Lock()
	defer a.progress.mu.Unlock()
	a.progress.bar = b
	return &bar{a.progress, b}
}

// bar is one bar; the zero value draws nothing.
type bar struct {
	p   *progress
	bar *progressbar.ProgressBar
}

// Report implements runtime.Bar.
func (b *bar) Report(s round.Progress) {
	if b.bar == nil {
		return
	}
	b.p.mu.Lock()
	defer b.p.mu.Unlock()
	b.bar.ChangeMax(max(s.Total, s.Done))
	b.bar.Describe(plain.Line(s.What))
	// Drawing is a courtesy; a terminal that went away stops no scan.
	_ = b.bar.Set(s.Done)
}

// Finish implements runtime.Bar.
func (b *bar) Finish() {
	if b.bar == nil {
		return
	}
	b.p.mu.Lock()
	defer b.p.mu.Unlock()
	_ = b.bar.Finish()
	b.p.bar = nil
}
