package bill

import (
	"slices"
	"strings"
	"time"
)

// Summary sums a bill, with all digits. A cost that the bill leaves out everywhere is null.
type Summary struct {
	Source         string          `json:"source"`
	Written        string          `json:"written_in"`
	Rows           int64           `json:"rows"`
	BilledCost     string          `json:"billed_cost_usd"`
	EffectiveCost  *string         `json:"effective_cost_usd"`
	ListCost       *string         `json:"list_cost_usd"`
	ContractedCost *string         `json:"contracted_cost_usd"`
	Periods        []SummaryPeriod `json:"periods"`
	Removed        []string        `json:"removed,omitempty"`
	MissingColumns []string        `json:"missing_columns"`
	Notes          []string        `json:"notes"`
}

// SummaryPeriod is a billing period of a summary, over all billing accounts.
type SummaryPeriod struct {
	Start          time.Time        `json:"start"`
	Rows           int64            `json:"rows"`
	BilledCost     string           `json:"billed_cost_usd"`
	EffectiveCost  *string          `json:"effective_cost_usd"`
	ListCost       *string          `json:"list_cost_usd"`
	ContractedCost *string          `json:"contracted_cost_usd"`
	Accounts       []SummaryAccount `json:"accounts"`
}

// SummaryAccount is one billing account in a period, and the effect of importing on its stored
// rows.
type SummaryAccount struct {
	Account    string `json:"account"`
	Rows       int64  `json:"rows"`
	BilledCost string `json:"billed_cost_usd"`
	Change     Change `json:"change,omitempty"`
}

// tally adds up periods.
type tally struct {
	sums  Sums
	lines int64
	known [3]int64 // lines with effective, list and contracted cost
}

func (t *tally) add(s *Settled) {
	t.sums = t.sums.Add(s.Sums)
	t.lines += s.Lines
	for i, lacking := range [...]int64{s.NoEffective, s.NoList, s.NoContracted} {
		t.known[i] += s.Lines - lacking
	}
}

// texts returns the costs besides the billed one, nil if no line has it.
func (t *tally) texts() (effective, list, contracted *string) {
	text := func(d Decimal, known int64) *string {
		if known == 0 && t.lines > 0 {
			return nil
		}
		s := Dollars(d.String())
		return &s
	}
	return text(t.sums.Effective, t.known[0]), text(t.sums.List, t.known[1]), text(t.sums.Contracted, t.known[2])
}

// Dollars returns the text of a [Decimal] or of an [Exact] cost as documents write it: all
// its digits, and at least two after the point.
func Dollars(decimal string) string {
	if decimal == "" {
		return ""
	}
	whole, fraction, _ := strings.Cut(decimal, ".")
	return whole + "." + fraction + strings.Repeat("0", max(0, 2-len(fraction)))
}

// Summarize returns the summary of a bill and, if planned is not nil, the effect of its import.
func Summarize(b *Bill, planned []Planned) Summary {
	changes := make(map[PeriodKey]Change, len(planned))
	d := Summary{Source: b.Source, Written: b.Schema, Periods: []SummaryPeriod{},
		MissingColumns: slices.Clone(b.Missing), Notes: slices.Clone(b.Notes)}
	for _, p := range planned {
		changes[p.utc()] = p.Change
		if p.Change == Removed {
			d.Removed = append(d.Removed, p.Start.Format(time.DateOnly)+" "+p.Account)
		}
	}
	if d.MissingColumns == nil {
		d.MissingColumns = []string{}
	}
	if d.Notes == nil {
		d.Notes = []string{}
	}
	var all tally
	for i := 0; i < len(b.Periods); {
		start := b.Periods[i].Start
		p := SummaryPeriod{Start: start}
		var t tally
		for ; i < len(b.Periods) && b.Periods[i].Start.Equal(start); i++ {
			s := b.Periods[i]
			t.add(s)
			all.add(s)
			p.Accounts = append(p.Accounts, SummaryAccount{
				s.Account, s.Lines, Dollars(s.Exact.Billed), changes[s.utc()],
			})
		}
		p.Rows, p.BilledCost = t.lines, Dollars(t.sums.Billed.String())
		p.EffectiveCost, p.ListCost, p.ContractedCost = t.texts()
		d.Periods = append(d.Periods, p)
	}
	d.Rows, d.BilledCost = all.lines, Dollars(all.sums.Billed.String())
	d.EffectiveCost, d.ListCost, d.ContractedCost = all.texts()
	return d
}
