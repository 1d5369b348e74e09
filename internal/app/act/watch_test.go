package act_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/alert"
	"github.com/curfew-dev/curfew/internal/app/act"
	"github.com/curfew-dev/curfew/internal/app/apptest"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/store"
)

// told is a notifier that records its messages.
type told []string

func (t *told) Notify(_ context.Context, to string, m action.Message) (string, error) {
	*t = append(*t, m.Kind+" "+to+": "+m.Because)
	return "test:" + to, nil
}

// spender writes a ledger of one account with one machine of ana's.
type spender struct {
	t       *testing.T
	s       *store.Store
	account ledger.Account
}

func (w spender) charge(hour time.Time, amount money.Amount) {
	w.t.Helper()
	version, err := w.s.Ledger().Version(w.t.Context(), w.account)
	if err != nil {
		w.t.Fatal(err)
	}
	entry := ledger.Entry{
		Kind: ledger.Accrual, Hour: hour, Round: hour.Add(time.Hour),
		Line: ledger.Line{
			Ref: inventory.Ref{
				Cloud: "aws", Account: "1", Region: "us-east-1", Kind: inventory.KindInstance, ID: "i-1",
			},
			Attributes: ledger.Attributes{Owner: inventory.Owner{User: "ana", Team: "vision"}},
			Meter:      "instance", Category: inventory.CategoryCompute, ChargeCategory: ledger.Usage, Duty: "busy",
			Pricing: ledger.Standard,
		},
		Sums: ledger.Sums{Seconds: 3600, Amount: amount},
	}
	if _, err := w.s.Ledger().Append(w.t.Context(), w.account, version, []ledger.Entry{entry}); err != nil {
		w.t.Fatal(err)
	}
}

func (w spender) read(at time.Time) {
	w.t.Helper()
	if err := w.s.Ledger().Record(w.t.Context(), ledger.Round{
		Account: w.account, At: at, Complete: []ledger.Part{{Region: "us-east-1", Kind: inventory.KindInstance}},
	}, nil); err != nil {
		w.t.Fatal(err)
	}
}

// TestNotifiesOfSpendAlerts follows the spend of a person through the ladder: it is reported once,
// again when it has doubled and after a day, is not resolved while the ledger has no data, and is
// then resolved.
func TestNotifiesOfSpendAlerts(t *testing.T) {
	const dollar = 1_000_000_000
	now := apptest.Now
	req := apptest.RequestAt(t, "budgets:\n  - {id: vision, team: vision, amount: 100000, period: monthly, purpose: any}\n",
		func() time.Time { return now })
	cfg, s, err := req.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := spender{t, s, ledger.Account{Cloud: "aws", ID: "1"}}
	for ago := 30; ago >= 1; ago-- {
		w.charge(now.Add(-time.Duration(ago)*24*time.Hour-time.Hour), 10*dollar)
		w.read(now.Add(-time.Duration(ago) * 24 * time.Hour))
	}
	l, err := act.AlertLadder(req, cfg, s)
	if err != nil {
		t.Fatal(err)
	}
	var people told
	l.Notifier = &people
	l.Clock = func() action.Clock { return action.Clock{Wall: now} }
	watch := func(want ...string) {
		t.Helper()
		people = nil
		if _, err := act.Watch(t.Context(), cfg, s, l, &act.Refusals{}, now); err != nil {
			t.Fatal(err)
		}
		if len(people) != len(want) {
			t.Fatalf("at %s: told %q, want %q", now, people, want)
		}
		for i := range want {
			if !strings.Contains(strings.Join(people, "\n"), want[i]) {
				t.Errorf("at %s: told %q, want %q", now, people, want[i])
			}
		}
	}
	w.charge(now.Add(-time.Hour), 10*dollar)
	watch()
	now = now.Add(time.Hour)
	w.charge(now.Add(-time.Hour), 200*dollar)
	watch("notice owner: person ana spent $210 in 24 hours, and $10.00 on a usual day", "notice team: team vision")
	now = now.Add(time.Hour)
	w.charge(now.Add(-time.Hour), 10*dollar)
	watch()
	now = now.Add(time.Hour)
	w.charge(now.Add(-time.Hour), 250*dollar)
	watch("notice owner: person ana spent $470 in", "notice team: team vision")

	alerts, err := act.Alerts(t.Context(), req)
	if err != nil || len(alerts.Alerts) != 2 || !strings.HasPrefix(alerts.Alerts[0].Next, "curfew costs") ||
		alerts.Alerts[0].SpentUSD.Or(0) != 470*dollar || alerts.Alerts[0].What != alert.SpendJump {
		t.Errorf("listed: %+v, %v", alerts.Alerts, err)
	}
	w.read(now)
	now = now.Add(26 * time.Hour) // the ledger is silent
	watch()
	w.charge(now.Add(-time.Hour), 10*dollar)
	w.read(now)
	watch("resolved owner: person ana", "resolved team: team vision")
	now = now.Add(37 * time.Hour)
	watch("notice owner: aws/1 was last read at")
	now = now.Add(time.Hour)
	blind := "curfew/installation/global/account/aws/1"
	if _, err := act.Exempt(t.Context(), req, clouds.Source{}, blind, "72h", "it is being moved"); err != nil {
		t.Fatal(err)
	}
	now = now.Add(25 * time.Hour)
	watch()
}
