package cli

import (
	"sync"

	"github.com/schollz/progressbar/v3"

	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/round"
)

// progress draws how far a scan is on the terminal; elsewhere it draws nothing.
type progress struct {
	mu  sync.Mutex
	bar *progressbar.ProgressBar
}

func (a *app) newProgress(what string) daemon.Bar {
	p := &progress{}
	if !a.Progress || a.quiet {
		return p
	}
	p.bar = progressbar.NewOptions(1,
		progressbar.OptionSetWriter(a.bars),
		progressbar.OptionSetDescription("reading "+plain.Line(what)),
		progressbar.OptionSetWidth(28),
		progressbar.OptionShowCount(),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetPredictTime(false),
	)
	return p
}

// Report implements daemon.Bar.
func (p *progress) Report(s round.Progress) {
	if p.bar == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bar.ChangeMax(max(s.Total, s.Done))
	p.bar.Describe(plain.Line(s.What))
	// Drawing is a courtesy; a terminal that went away stops no scan.
	_ = p.bar.Set(s.Done)
}

// Finish implements daemon.Bar.
func (p *progress) Finish() {
	if p.bar == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.bar.Finish()
}
