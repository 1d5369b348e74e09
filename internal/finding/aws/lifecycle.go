package aws

import (
	"time"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// What the colder classes add for each object, and the least time they bill
// (Amazon S3 User Guide, "Understanding and managing Amazon S3 storage classes"):
// an archived object keeps 32 KiB of index in the archive and 8 KiB of its name in
// the standard class.
const (
	archiveIndexBytes = 32 << 10
	archiveNameBytes  = 8 << 10
	infrequentDays    = 30
	archivedDays      = 90
)

func days(n int) time.Duration { return time.Duration(n) * day }

// stored is data that a proposal moves.
type stored struct{ inventory.Stored }

func (s *stored) add(o inventory.Stored) {
	s.Bytes += o.Bytes
	s.Objects += o.Objects
}

// moves is what a bucket's proposal does with what is in the standard class now.
type moves struct {
	infrequent, archive, expire, small stored
	// rules do that: they are what is put.
	rules []change.Rule
}

// inStandard says whether a prefix lies in the standard class.
func inStandard(b *inventory.Bucket, p *inventory.Prefix) bool {
	if p.Class != "" {
		return p.Class == standard
	}
	sizes, known := b.Sizes.Get()
	for class, n := range sizes {
		if class != standard && n > 0 {
			return false
		}
	}
	return known
}

// older returns what is older than an age under a prefix: exactly, or where that
// age was not asked for what is older than the next one, which is less.
func older(p *inventory.Prefix, age int) inventory.Stored {
	best, found := 0, false
	for a := range p.Older {
		if a >= age && (!found || a < best) {
			best, found = a, true
		}
	}
	return p.Older[best]
}

func less(a, b inventory.Stored) inventory.Stored {
	return inventory.Stored{Bytes: max(0, a.Bytes-b.Bytes), Objects: max(0, a.Objects-b.Objects)}
}

// propose adapts the proposals to what is under each prefix: data goes to
// infrequent access and then to the archive, experiments expire, checkpoints are
// another rule's matter, small objects stay. The rules that do so come with them.
func propose(x *finding.Index, b *inventory.Bucket, prefixes []inventory.Prefix) moves {
	var m moves
	whole := alike(b, prefixes)
	if whole {
		m.rules = []change.Rule{colderRule(x.Thresholds, "")}
	}
	for i := range prefixes {
		p := &prefixes[i]
		// No rule is for the objects beside the prefixes alone.
		if !inStandard(b, p) || p.Name == "" && !whole {
			continue
		}
		switch kindOf(p.Name) {
		case checkpointPrefix:
			continue
		case experimentPrefix:
			m.rules = append(m.rules, expireRule(x.Thresholds, p.Name))
			gone := older(p, x.Thresholds.ExpireDays)
			m.expire.add(gone)
			m.infrequent.add(less(older(p, x.Thresholds.InfrequentDays), gone))
		default:
			if !whole {
				m.rules = append(m.rules, colderRule(x.Thresholds, p.Name))
			}
			cold := older(p, x.Thresholds.ArchiveDays)
			m.archive.add(cold)
			m.infrequent.add(less(older(p, x.Thresholds.InfrequentDays), cold))
		}
		m.small.add(p.Small)
	}
	return m
}

// listed says whether the listing of a bucket saw all of it: no prefix stopped at
// its bound, and together they hold what the bucket's size says.
func listed(x *finding.Index, b *inventory.Bucket, prefixes []inventory.Prefix) bool {
	var total int64
	for i := range prefixes {
		if !prefixes[i].Complete {
			return false
		}
		total += prefixes[i].Bytes
	}
	sizes, known := b.Sizes.Get()
	var size int64
	for _, n := range sizes {
		size += n
	}
	return known && float64(total) >= x.Thresholds.Coverage*float64(size)
}

// bucketNoLifecycle finds buckets whose objects stay in the standard class for
// ever, and proposes rules by prefix. The saving counts what lies there now: the
// cheaper class's own price, what it adds for each object, and small objects that
// stay; the fees of moving are told beside it with the time that repays them.
func bucketNoLifecycle(x *finding.Index, s *finding.Subject) *finding.Draft {
	b, ok := s.Detail.(*inventory.Bucket)
	if !ok || empty(b) {
		return nil
	}
	rules, known := b.Lifecycle.Get()
	if !known {
		return nil
	}
	for _, r := range rules {
		if r.Enabled {
			return nil
		}
	}
	total, sized := standardBytes(b)
	if sized && total == 0 {
		return nil
	}
	d := &finding.Draft{Finding: finding.Finding{
		Confidence: finding.High,
		Because:    "no lifecycle rule",
		Evidence:   []usage.Evidence{finding.Fact(s, "lifecycle_rules", "0")},
		Fix:        finding.Fix{Change: change.Change{Verb: change.PutLifecycle}, Risk: finding.Low, Undo: finding.UndoPartial},
	}}
	if sized {
		d.Because = finding.Size(total) + " in the standard class, no lifecycle rule"
		d.Evidence = append(d.Evidence, finding.Fact(s, "standard_bytes", usage.Number(float64(total), 0)))
	}
	prefixes, known := b.Prefixes.Get()
	if !known || !listed(x, b, prefixes) {
		d.Confidence = finding.Medium
		d.Unknown = "how old the objects are is not known; all of them archived"
		d.Fix.Change = putLifecycle(b, colderRule(x.Thresholds, ""))
		priceMoves(x, d, s, b, &moves{archive: stored{inventory.Stored{Bytes: total}}})
		return d
	}
	m := propose(x, b, prefixes)
	d.Fix.Change = putLifecycle(b, m.rules...)
	if m.expire.Bytes > 0 {
		d.Fix.Risk, d.Fix.Undo = finding.Medium, finding.UndoNone
		d.Fix.Note = "expires experiments after " + finding.Count(int64(x.Thresholds.ExpireDays), "day") + ": what has expired is gone"
		if versioned, known := b.Versioned.Get(); versioned || !known {
			d.Unknown = "in a versioned bucket what expires goes on costing as a replaced version until a rule ends those"
		}
	}
	priceMoves(x, d, s, b, &m)
	return d
}

// priceMoves adds to a draft what its moves save a month and cost once, as evidence,
// note and claim.
func priceMoves(x *finding.Index, d *finding.Draft, s *finding.Subject, b *inventory.Bucket, m *moves) {
	moved := m.infrequent.Bytes + m.archive.Bytes + m.expire.Bytes
	saved, err := standardSaved(x, s, b, moved)
	if err != nil {
		d.NoPrice(s, err)
		return
	}
	keeps, fees := money.Amount(0), money.Amount(0)
	add := func(to *money.Amount, item price.Item, n, per int64) {
		if n == 0 || err != nil {
			return
		}
		var p price.Price
		if p, err = x.Rate(item, s.Region); err != nil {
			return
		}
		var cost money.Amount
		if cost, err = p.Cost(n, per); err == nil {
			*to, err = to.Add(cost)
		}
	}
	add(&keeps, "s3:STANDARD_IA", m.infrequent.Bytes, gib)
	add(&keeps, "s3:GLACIER", m.archive.Bytes+m.archive.Objects*archiveIndexBytes, gib)
	add(&keeps, "s3:STANDARD", m.archive.Objects*archiveNameBytes, gib)
	add(&fees, "s3:transition:STANDARD_IA", m.infrequent.Objects, 1)
	add(&fees, "s3:transition:GLACIER", m.archive.Objects, 1)
	if err != nil {
		d.NoPrice(s, err)
		return
	}
	monthly := max(0, saved-keeps)
	explain(x, d, s, m, monthly, fees)
	if !d.ClaimAmount(s, standardMeter, monthly, finding.SavingsOnly) {
		d.NoPrice(s, nil)
		return
	}
	if monthly == 0 {
		d.Stands, d.Savings = true, finding.Saving{Known: true}
	}
}

// explain says what a proposal moves, what that costs once, and what to know of
// the colder classes.
func explain(x *finding.Index, d *finding.Draft, s *finding.Subject, m *moves, monthly, fees money.Amount) {
	for _, part := range []struct {
		signal string
		stored
	}{{"to_infrequent_access", m.infrequent}, {"to_archive", m.archive}, {"to_expire", m.expire}, {"small_objects_stay", m.small}} {
		if part.Bytes > 0 {
			v := finding.Size(part.Bytes)
			if part.Objects > 0 {
				v += " in " + finding.Count(part.Objects, "object")
			}
			d.Evidence = append(d.Evidence, finding.Fact(s, part.signal, v))
		}
	}
	if m.infrequent.Bytes > 0 {
		colder(x, d, s, "STANDARD_IA", infrequentDays)
	}
	if m.archive.Bytes > 0 {
		colder(x, d, s, "GLACIER", archivedDays)
	}
	if m.small.Objects > 0 {
		d.Fix.Note = finding.Sentence(d.Fix.Note, finding.Count(m.small.Objects, "object")+" under 128 KiB do not move")
	}
	switch {
	case fees == 0 && m.infrequent.Objects+m.archive.Objects == 0 && m.infrequent.Bytes+m.archive.Bytes > 0:
		d.Fix.Note = finding.Sentence("moving costs a fee for each object, whose number is not known", d.Fix.Note)
	case fees > 0 && monthly > 0:
		months := money.Ratio(fees, monthly)
		d.Evidence = append(d.Evidence, finding.Priced("transition_fees_usd", fees, "price book"),
			usage.Fact("months_to_repay_fees", usage.Number(months, 1), "price book"))
		d.Fix.Note = finding.Sentence("moving costs "+fees.Dollars()+" once, repaid in "+usage.Number(months, 1)+" months", d.Fix.Note)
	case fees > 0:
		d.Evidence = append(d.Evidence, finding.Priced("transition_fees_usd", fees, "price book"))
		d.Fix.Note = finding.Sentence("moving costs "+fees.Dollars()+" once and saves nothing", d.Fix.Note)
	}
	if monthly > 0 {
		d.Evidence = append(d.Evidence, finding.Priced("monthly_saving_before_fees_usd", monthly, "price book"))
	}
}

// colder notes the least time a class bills and what reading from it costs.
func colder(x *finding.Index, d *finding.Draft, s *finding.Subject, class string, least int) {
	d.Evidence = append(d.Evidence, finding.Fact(s, "least_days_"+class, usage.Number(float64(least), 0)))
	note := class + " bills at least " + finding.Count(int64(least), "day")
	if p, err := x.Rate(price.Item("s3:retrieval:"+class), s.Region); err == nil && p.Rate > 0 {
		note += ", reading it back costs $" + p.Rate.String() + " a GiB"
		d.Evidence = append(d.Evidence, usage.Fact("retrieval_usd_per_gib_"+class, p.Rate.String(), p.Source))
	}
	if class == "GLACIER" {
		note += " and takes hours"
	}
	d.Fix.Note = finding.Sentence(d.Fix.Note, note)
}
