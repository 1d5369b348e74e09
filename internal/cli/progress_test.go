package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestLongCommandShowsProgress: after two seconds a line says for how long a command works; it is
// gone before anything else is written, and does not come back once the output has begun.
func TestLongCommandShowsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen bytes.Buffer
		p := &progress{to: &screen, what: "curfew backtest"}
		ctx, stop := context.WithCancel(t.Context())
		go p.watch(ctx)
		drawn := func(after time.Duration) string {
			screen.Reset()
			time.Sleep(after)
			synctest.Wait()
			return screen.String()
		}
		if got := drawn(workedFor - time.Millisecond); got != "" {
			t.Errorf("before two seconds it draws %q", got)
		}
		if got := drawn(1500 * time.Millisecond); !strings.Contains(got, "curfew backtest: working for 3s") {
			t.Errorf("after three seconds it draws %q", got)
		}
		a := &app{Process: &Process{Progress: true}, progress: p}
		bar := a.newProgress("the bill")
		if got := drawn(2 * time.Second); strings.Contains(got, "working") {
			t.Errorf("next to a bar it draws %q", got)
		}
		bar.Finish()
		if got := drawn(time.Second); !strings.Contains(got, "working for") {
			t.Errorf("after the bar it draws %q", got)
		}
		screen.Reset()
		if _, err := (before{&screen, p, true}).Write([]byte("done\n")); err != nil ||
			screen.String() != "\r\x1b[Kdone\n" {
			t.Errorf("the output is %q, %v", screen.String(), err)
		}
		if got := drawn(5 * time.Second); got != "" {
			t.Errorf("in the output it draws %q", got)
		}
		stop()
		synctest.Wait()
	})
}
