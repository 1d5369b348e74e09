package simulation

import (
	"context"
	_ "embed" // for the budgets of the demonstration
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/spend"
	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
)

// Limits of the simulated ledger: how far back it goes, and the time between two passes.
const (
	booksLength   = 32 * oneDay
	booksInterval = oneDay
	// booksStep is the time between the samples from which usage is judged.
	booksStep = 5 * time.Minute
)

// ownBudgets are the budgets of the simulation if the configuration has none.
//
//go:embed books.yaml
var ownBudgets []byte

// Books is the storage of `--demo`: every state is new and contains the simulated account, with
// charges that rounds of the engine posted to its ledger, and a bill. It is removed with the
// request.
type Books struct{}

// Exists implements Storage.
func (Books) Exists(config.Config) bool { return true }

// Serves implements Storage.
func (Books) Serves() bool { return false }

// Open implements Storage.
func (Books) Open(ctx context.Context, req *runtime.Request, cfg config.Config) (config.Config, *store.Store, error) {
	if len(cfg.Budgets) == 0 {
		set, err := budget.Parse("books.yaml", ownBudgets)
		if err != nil {
			return cfg, nil, err
		}
		cfg.Budgets = set.Budgets()
	}
	now := req.Now().UTC().Truncate(time.Minute)
	s, err := New(ctx, clouds.SimSeed, cfg.Tags, now, now.Add(-booksLength))
	if err != nil {
		return cfg, nil, err
	}
	if err := KeepBooks(ctx, req, cfg, s, s.Dir, now, booksLength); err != nil {
		return cfg, nil, errors.Join(err, s.Close())
	}
	if len(cfg.Units) == 0 {
		if cfg.Units, err = countedUnits(s.Dir, now, booksLength); err != nil {
			return cfg, nil, errors.Join(err, s.Close())
		}
	}
	req.OnClose(s.Close)
	return cfg, s.Store, nil
}

// countedUnits returns the units of the simulation, with a file of counts: predictions that follow
// the days of the week and grow by 1% a week, and GPU hours.
func countedUnits(dir string, now time.Time, length time.Duration) ([]config.Unit, error) {
	const weekday, weekend, growth = 41_000_000, 23_000_000, 1.01
	path := filepath.Join(dir, "predictions.csv")
	text := []byte("time,count\n")
	first := now.Add(-length).Truncate(oneDay)
	for day := first; day.Before(now.Truncate(oneDay)); day = day.Add(oneDay) {
		count := float64(weekday)
		if d := day.Weekday(); d == time.Saturday || d == time.Sunday {
			count = weekend
		}
		count *= math.Pow(growth, day.Sub(first).Hours()/(7*24))
		text = fmt.Appendf(text, "%s,%d\n", day.Format(time.DateOnly), int64(count))
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return nil, fmt.Errorf("write the simulated counts: %w", err)
	}
	return []config.Unit{
		{
			Name: "prediction", Where: map[string]string{"purpose": "inference"}, Target: "0.0002",
			Counts: config.Counts{File: path},
		},
		{Name: "GPU-hour", Counts: config.Counts{File: config.GPUHours}},
	}, nil
}

// KeepBooks runs rounds that post the charges of a period that ends at a time, and imports their
// bill, which is written to a folder.
func KeepBooks(ctx context.Context, req *runtime.Request, cfg config.Config, s *World, dir string, now time.Time,
	length time.Duration) error {
	setting, err := Setting(req, cfg, s)
	if err != nil {
		return err
	}
	setting.Query, setting.LookBack, setting.Step = round.Query{Window: booksInterval}, booksInterval, booksStep
	setting.Books = ledger.Journal{Store: s.Store.Ledger()}
	bar := req.Progress("simulated books")
	defer bar.Finish()
	days := int(length / booksInterval)
	for day := 0; ; day++ {
		bar.Report(round.Progress{What: "simulated books", Done: day, Total: days})
		if _, err := pass(ctx, round.New(setting)); err != nil {
			return err
		}
		if !s.Clock.Now().Before(now) {
			break
		}
		s.Clock.Forward(s.Clock.Now().Add(booksInterval))
	}
	return importSimulatedBill(ctx, req, cfg, s, dir, now, length)
}

// The simulated bill: a negotiated discount on compute, support as a share of the rest, and
// no day newer than two days, as providers bill late.
const (
	billedPercent  = 94
	supportPercent = 3
	billingDelay   = 2 * oneDay
)

// importSimulatedBill writes the charges of the ledger as the provider would bill them, in FOCUS,
// and imports the file like any bill.
func importSimulatedBill(ctx context.Context, req *runtime.Request, cfg config.Config, s *World, dir string,
	now time.Time, length time.Duration) error {
	account := ledger.Account{Cloud: sim.CloudName, ID: sim.Account}
	until := now.Add(-billingDelay).Truncate(oneDay)
	days, err := s.Store.Ledger().ResourceDays(ctx, account, now.Add(-length).Truncate(oneDay), until)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "bill.csv")
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write the simulated bill: %w", err)
	}
	out := csv.NewWriter(file)
	line := func(cells ...string) { err = errors.Join(err, out.Write(cells)) }
	line("BilledCost", "EffectiveCost", "ListCost", "BillingAccountId", "SubAccountId", "BillingCurrency",
		"BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart",
		"ChargePeriodEnd", "ChargeCategory", "ChargeDescription", "ServiceCategory", "ServiceName", "ProviderName",
		"ResourceId", "RegionId", "Tags")
	charge := func(day time.Time, listed, billed money.Amount, what, service, resource, region, tags string) {
		month := time.Date(day.Year(), day.Month(), 1, 0, 0, 0, 0, time.UTC)
		line(billed.String(), billed.String(), listed.String(), sim.Account, sim.Account, "USD",
			month.Format(time.RFC3339),
			month.AddDate(0, 1, 0).Format(time.RFC3339),
			day.Format(time.RFC3339), day.Add(oneDay).Format(time.RFC3339), string(bill.Usage), what, service, service,
			sim.CloudName, resource, region, tags)
	}
	support := map[time.Time]money.Amount{}
	for _, d := range days {
		if d.Accrued == 0 {
			continue
		}
		share, service := int64(100), "Other"
		switch d.Category {
		case ledger.Compute:
			share, service = billedPercent, "Compute"
		case ledger.Storage:
			service = "Storage"
		case ledger.Network:
			service = "Networking"
		}
		billed, errBilled := d.Accrued.Mul(share, 100)
		extra, errExtra := billed.Mul(supportPercent, 100)
		sum, errSum := support[d.Day].Add(extra)
		if err := errors.Join(errBilled, errExtra, errSum); err != nil {
			return fmt.Errorf("write the simulated bill: %w", err)
		}
		support[d.Day] = sum
		tags := "{}"
		if d.Attributes.Owner.Team != "" {
			tags = `{"team":` + strconv.Quote(d.Attributes.Owner.Team) + `}`
		}
		charge(d.Day, d.Accrued, billed, string(d.Ref.Kind), service, d.Ref.ID, d.Ref.Region, tags)
	}
	for _, day := range slices.SortedFunc(maps.Keys(support), time.Time.Compare) {
		charge(day, support[day], support[day], "support", "Other", "", "", "{}")
	}
	out.Flush()
	if err = errors.Join(err, out.Error(), file.Close()); err != nil {
		return fmt.Errorf("write the simulated bill: %w", err)
	}
	b, err := spend.ReadBill(ctx, req, cfg, spend.BillSource{Path: path})
	if err != nil {
		return err
	}
	replace, _, err := bill.Plan(b, nil, now)
	if err != nil {
		return err
	}
	return s.Store.Bills().Replace(ctx, replace)
}
