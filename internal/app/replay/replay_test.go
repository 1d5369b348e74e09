package replay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/apptest"
	"github.com/curfew-dev/curfew/internal/app/replay"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/view"
)

// traced returns a request of a service that may replay a trace of one machine, which works for two
// hours and then idles for six.
func traced(t *testing.T) (*runtime.Request, string) {
	t.Helper()
	dir := t.TempDir()
	var text bytes.Buffer
	text.WriteString("time,resource,gpu_util\n")
	for minute := range 8 * 60 {
		busy := 0
		if minute < 120 {
			busy = 90
		}
		fmt.Fprintf(&text, "%s,dev,%d\n",
			apptest.Now.Add(time.Duration(minute-480)*time.Minute).Format(time.RFC3339), busy)
	}
	trace := filepath.Join(dir, "trace.csv")
	if err := os.WriteFile(trace, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return apptest.Request(t, fmt.Sprintf("serve: {trace_paths: [%q]}\n", dir)), trace
}

func TestBacktestIsCarriedOut(t *testing.T) {
	req, trace := traced(t)
	made, err := replay.CreateBacktest(t.Context(), req, view.BacktestAsked{
		Trace: trace, Price: "10", RestartCost: "5m", Baselines: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	id := made.Backtests[0].ID
	_, err = replay.BacktestResult(t.Context(), req, id)
	var f *runtime.Error
	if !errors.As(err, &f) || f.Class != runtime.Held {
		t.Errorf("the result of one that waits: %v, want it held", err)
	}
	_, s, err := req.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		replay.RunBacktests(ctx, req.Fresh(), replay.BacktestRunner{
			Store: s, TTL: time.Minute, Poll: time.Millisecond, Log: slog.New(slog.DiscardHandler),
		})
	}()
	defer func() { stop(); <-ended }()
	for {
		doc, err := replay.Backtest(t.Context(), req, id)
		if err != nil {
			t.Fatal(err)
		}
		if state := doc.Backtests[0].State; state == "done" {
			break
		} else if state != "queued" && state != "running" {
			t.Fatalf("it is %s: %s", state, doc.Backtests[0].Note)
		}
		time.Sleep(5 * time.Millisecond)
	}
	raw, err := replay.BacktestResult(t.Context(), req, id)
	if err != nil {
		t.Fatal(err)
	}
	var result struct{ Schema string }
	if err := json.Unmarshal(raw, &result); err != nil || result.Schema != view.BacktestSchema {
		t.Errorf("the result is %s, %v", result.Schema, err)
	}
}

func TestBacktestReadsOnlyAllowedTraces(t *testing.T) {
	req, _ := traced(t)
	other := filepath.Join(t.TempDir(), "other.csv")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := replay.CreateBacktest(t.Context(), req, view.BacktestAsked{Trace: other, Baselines: true})
	var f *runtime.Error
	if !errors.As(err, &f) || f.Code != "not_allowed" {
		t.Errorf("got %v, want not_allowed", err)
	}
}

func TestBacktestIsCanceled(t *testing.T) {
	req, trace := traced(t)
	made, err := replay.CreateBacktest(t.Context(), req, view.BacktestAsked{
		Trace: trace, Price: "10", Baselines: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	doc, err := replay.CancelBacktest(t.Context(), req, made.Backtests[0].ID, false)
	if err != nil || doc.Backtests[0].State != "canceled" {
		t.Errorf("got %+v, %v, want it canceled", doc.Backtests, err)
	}
}
