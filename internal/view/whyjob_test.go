package view_test

import (
	"errors"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/view"
)

func TestJobFiguresAddUp(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	usd := func(n money.Amount) money.Dollars { return money.Known(n * money.USD) }
	job := view.Run{Name: "train.v2", CostUSD: usd(30), Job: &view.RunJob{
		UsefulUSD: usd(14), RepeatedUSD: usd(3), WaitingUSD: usd(3),
		Attempts: []view.RunAttempt{
			{Number: 1, LaunchedAt: &at, EndedAt: &at, EndedBy: "interrupted", CostUSD: usd(12), UsefulUSD: usd(8),
				RepeatedUSD: usd(3), WaitingUSD: usd(1), LostSeconds: 600},
			{Number: 2, LaunchedAt: &at, EndedAt: &at, EndedBy: "interrupted", CostUSD: usd(8), UsefulUSD: usd(6),
				RepeatedUSD: usd(0), WaitingUSD: usd(2)},
			{Number: 3, LaunchedAt: &at},
		},
	}}
	for name, want := range map[string]struct {
		value money.Dollars
		rows  int
	}{"cost": {usd(30), 3}, "useful": {usd(14), 2}, "repeated": {usd(3), 2}, "waiting": {usd(3), 2}} {
		id, figure, ok := view.CutJobFigure("job.train.v2." + name)
		if !ok || id != "train.v2" || figure != name {
			t.Errorf("job.train.v2.%s is %q of %q", name, figure, id)
		}
		why, err := view.NewJobWhy(job, figure, at)
		total := money.Amount(0)
		for _, r := range why.Rows {
			total += r.AmountUSD.Or(0)
		}
		if err != nil || why.ValueUSD != want.value || total != want.value.Or(0) || len(why.Rows) != want.rows {
			t.Errorf("%s: %v, %+v", name, err, why)
		}
	}
	var unknown *view.ErrNoFigure
	if _, err := view.NewJobWhy(job, "usefu", at); !errors.As(err, &unknown) || unknown.Meant == "" {
		t.Errorf("got %v, want the figure that is meant", err)
	}
	if _, _, ok := view.CutJobFigure("budget.vision.spent"); ok {
		t.Error("the figure of a budget is one of a job")
	}
}
