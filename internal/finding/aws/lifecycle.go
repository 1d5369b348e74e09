package aws

import (
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// The overhead of each object in the colder classes, and their minimum billed time (Amazon S3 User
// Guide, "Understanding and managing Amazon S3 storage classes"): an archived object has 32 KiB of
// index in the archive and 8 KiB of its name in the standard class.
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

// moves is the effect of a bucket's proposed rules on the objects now in the standard class.
type moves struct {
	infrequent, archive, expire, small stored
	// rules are the proposed rules that have this effect.
	rules []change.Rule
	// open are the bytes that no existing rule moves out of the standard class, perhaps those that
	// only rules restricted by tags or dates may move, reached those that rules move.
	open, perhaps, reached int64
	// left are the bytes without a proposed rule, because it would override the one named by why.
	left int64
	why  []string
	// kept are the bytes that stay in the standard class because they are read, which the colder
	// classes charge for.
	kept int64
	// unmeasured is true if reads of the moved objects are unknown, briefly if they are known for
	// less than readWindow.
	unmeasured, briefly bool
}

// bytes returns the bytes that the proposal moves or expires.
func (m *moves) bytes() int64 { return m.infrequent.Bytes + m.archive.Bytes + m.expire.Bytes }

// standardOf returns the part of a prefix in the standard class.
func standardOf(b *inventory.Bucket, p *inventory.Prefix) inventory.Stored {
	switch {
	case p.Standard.Objects > 0:
		return p.Standard
	case p.Class == standard:
		return p.Stored
	case p.Class != "":
		return inventory.Stored{}
	}
	sizes, known := b.Sizes.Get()
	for class, n := range sizes {
		if class != standard && n > 0 {
			return inventory.Stored{}
		}
	}
	if !known {
		return inventory.Stored{}
	}
	return p.Stored
}

// moving reports whether a rule moves or expires objects by age.
func moving(r *inventory.LifecycleRule) bool {
	return r.Enabled && (r.ExpirationDays > 0 || len(r.TransitionDays) > 0)
}

// covered reports whether a rule moves or expires everything under a prefix.
func covered(rules []inventory.LifecycleRule, prefix string) bool {
	return slices.ContainsFunc(rules, func(r inventory.LifecycleRule) bool {
		return moving(&r) && !r.Filtered && strings.HasPrefix(prefix, r.Prefix)
	})
}

// older returns the objects under a prefix older than an age, or if that age was not listed, older
// than the next listed one, which is a lower bound.
func older(p *inventory.Prefix, age int) inventory.Stored {
	best, found := 0, false
	for a := range p.OlderThan {
		if a >= age && (!found || a < best) {
			best, found = a, true
		}
	}
	return p.OlderThan[best]
}

// readersOf are the kinds that name the data they read. If they could not be listed, the readers of
// data are unknown.
var readersOf = []inventory.Kind{inventory.KindTrainingJob, inventory.KindInstance}

// readWindow is the shortest record of reads by which data counts as unread: data that is read once
// a quarter is in use.
const readWindow = 92 * day

// readBy returns the known reader of objects over 30 days old below a prefix; empty if there is
// none.
func readBy(readers []finding.Reader, p *inventory.Prefix) string {
	for _, r := range readers {
		if r.Covers(p.Name) {
			return r.By
		}
	}
	if !p.LastRead.IsZero() {
		return "old objects were last read on " + p.LastRead.Format(time.DateOnly)
	}
	for _, bytes := range p.ReadBytes {
		if bytes > 0 {
			return "old objects were read in the last 30 days"
		}
	}
	return ""
}

// keep adds bytes that stay in the standard class because they are read.
func (m *moves) keep(p *inventory.Prefix, bytes int64, by string) {
	m.kept += bytes
	name := p.Name
	if name == "" {
		name = "the bucket"
	}
	m.why = append(m.why, name+" stays in the standard class, which charges nothing for reading: "+by)
}

// access records how reliably the moved objects are known to be unread.
func (m *moves) access(p *inventory.Prefix, now time.Time) {
	switch {
	case p.ReadsSince.IsZero():
		m.unmeasured = true
	case now.Sub(p.ReadsSince) < readWindow:
		m.briefly = true
	}
}

// weigh sets the risk of a fix by the knowledge of reads, with a note.
func (m *moves) weigh(fix *finding.Fix) {
	switch {
	case m.unmeasured:
		fix.Note = finding.Sentence(fix.Note, "whether it is read is not measured; Storage Class Analysis measures it, "+
			"and read_data in curfew.yaml names what is read")
	case m.briefly:
		fix.Note = finding.Sentence(fix.Note, "nothing of it was read, as far as is known, which is for less than a quarter")
	default:
		fix.Note = finding.Sentence(fix.Note, "nothing of it was read for a quarter")
		return
	}
	if fix.Risk = finding.Medium; fix.Undo == finding.UndoNone {
		fix.Risk = finding.High
	}
}

func less(a, b inventory.Stored) inventory.Stored {
	return inventory.Stored{Bytes: max(0, a.Bytes-b.Bytes), Objects: max(0, a.Objects-b.Objects)}
}

// propose chooses rules for each prefix without one: data moves to infrequent access and then to
// the archive, experiments expire; checkpoints have their own rule, small objects stay. The rules
// are one for the bucket if whole, else one per prefix. Data known to be read stays.
func propose(x *finding.Index, b *inventory.Bucket, rules []inventory.LifecycleRule, prefixes []inventory.Prefix,
	readers []finding.Reader, whole bool) moves {
	limits := limitsOf(b)
	var m moves
	m.unmeasured = len(prefixes) == 0
	if whole && len(readers) > 0 {
		whole = false
		if len(prefixes) == 0 {
			m.why = append(m.why, "no rule is proposed for the whole bucket: "+readers[0].By)
		}
	}
	if whole {
		all := leaveSmall(b, colderRule(x.Thresholds, ""))
		if why := limits.forbids(all); why != "" {
			whole = false
			m.why = append(m.why, notProposed("", why))
		} else {
			m.rules = []change.Rule{all}
		}
	}
	for i := range prefixes {
		p := &prefixes[i]
		here := standardOf(b, p)
		// No filter can select only the objects outside of all prefixes.
		if here.Bytes == 0 || p.Name == "" && !whole {
			continue
		}
		if covered(rules, p.Name) {
			m.reached += here.Bytes
			continue
		}
		m.reached += p.CoveredByRules.Bytes
		kind := kindOf(p.Name)
		if kind == checkpointPrefix {
			continue
		}
		if by := readBy(readers, p); by != "" {
			m.keep(p, max(0, here.Bytes-p.CoveredByRules.Bytes-p.PossiblyCovered.Bytes), by)
			continue
		}
		m.access(p, x.Now)
		move := leaveSmall(b, colderRule(x.Thresholds, p.Name))
		rule := move
		if kind == experimentPrefix {
			rule = expireRule(x.Thresholds, p.Name)
		}
		if kind == experimentPrefix || !whole {
			why := limits.forbids(rule)
			if why != "" && kind == experimentPrefix && limits.forbids(move) == "" {
				// Data that must not expire moves like other data.
				m.why = append(m.why, "nothing expires under "+p.Name+": "+why)
				kind, rule, why = dataPrefix, move, ""
			}
			if why != "" {
				m.left += max(0, here.Bytes-p.CoveredByRules.Bytes)
				m.why = append(m.why, notProposed(p.Name, why))
				continue
			}
		}
		m.perhaps += p.PossiblyCovered.Bytes
		m.open += max(0, here.Bytes-p.CoveredByRules.Bytes-p.PossiblyCovered.Bytes-p.Small.Bytes)
		switch kind {
		case experimentPrefix:
			m.rules = append(m.rules, rule)
			gone := older(p, x.Thresholds.ExpireDays)
			m.expire.add(gone)
			m.infrequent.add(less(older(p, x.Thresholds.InfrequentDays), gone))
		default:
			if !whole {
				m.rules = append(m.rules, rule)
			}
			cold := older(p, x.Thresholds.ArchiveDays)
			m.archive.add(cold)
			m.infrequent.add(less(older(p, x.Thresholds.InfrequentDays), cold))
		}
		m.small.add(p.Small)
	}
	return m
}

// listed reports whether the listing of a bucket is complete: no prefix was truncated, and the
// prefixes sum to the bucket's size.
func listed(x *finding.Index, b *inventory.Bucket, prefixes []inventory.Prefix) bool {
	total := int64(0)
	if old, known := b.Noncurrent.Get(); known && old.Complete {
		total = old.Bytes // the bucket's size includes noncurrent versions
	}
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

// bucketNoLifecycle finds data that no rule moves out of the standard class, and proposes rules by
// prefix. An existing rule counts only for objects that it moves or expires itself; a rule for
// another prefix, one that only aborts uploads, or a disabled one does not. The saving is that of
// the present data: the lower class price, less the overhead per object, without small objects. The
// finding also states transition fees and the time to recover them. If the listing is incomplete,
// the saving has a minimum, for the listed objects, and a maximum, for archiving everything.
func bucketNoLifecycle(x *finding.Index, s *finding.Subject) *finding.Draft {
	b, ok := s.Detail.(*inventory.Bucket)
	if !ok || empty(b) {
		return nil
	}
	rules, known := b.Lifecycle.Get()
	total, sized := standardBytes(b)
	if !known || covered(rules, "") || (sized && total == 0) {
		return nil
	}
	enabled := 0
	for i := range rules {
		if moving(&rules[i]) {
			enabled++
		}
	}
	prefixes, known := b.Prefixes.Get()
	all, by := known && listed(x, b, prefixes), b.ListedBy
	if whole, analyzed := b.Ages.Get(); analyzed && !all && enabled == 0 && alike(b, prefixes) {
		prefixes, known, all, by = []inventory.Prefix{whole}, true, true, b.AgesSource // one rule covers everything
	}
	readers := bucketReaders(x, s, b, total)
	one := enabled == 0 && alike(b, prefixes) && !slices.ContainsFunc(prefixes, func(p inventory.Prefix) bool {
		return readBy(readers, &p) != ""
	})
	m := propose(x, b, rules, prefixes, readers, !known || one)
	someRead := slices.ContainsFunc(readers, func(r finding.Reader) bool { return r.Prefix == "" })
	if all && (enabled > 0 || m.kept > 0) && m.open+m.perhaps+m.left == 0 ||
		someRead && len(m.rules) == 0 && m.left == 0 {
		return nil
	}
	d := &finding.Draft{Finding: finding.Finding{
		Confidence: finding.High,
		Because:    "no lifecycle rule",
		Evidence:   []usage.Evidence{finding.Fact(s, "lifecycle_rules", plain.Decimal(float64(enabled), 0))},
		Fix:        finding.Fix{Change: putLifecycle(b, m.rules...), Risk: finding.Low, Undo: finding.UndoPartial},
	}}
	if m.kept > 0 {
		d.Evidence = append(d.Evidence, finding.Fact(s, "kept_for_readers", plain.Size(m.kept)))
	}
	switch {
	case sized && enabled == 0:
		d.Because = plain.Size(total) + " in the standard class, no lifecycle rule"
	case all:
		d.Because = plain.Size(m.open+m.perhaps+m.left) + " in the standard class that no lifecycle rule moves"
	case sized:
		d.Because = "up to " + plain.Size(total-m.reached) + " in the standard class that no lifecycle rule moves"
	}
	if sized {
		d.Evidence = append(d.Evidence, finding.Fact(s, "standard_bytes", plain.Decimal(float64(total), 0)))
	}
	if m.reached > 0 {
		d.Evidence = append(d.Evidence, finding.Fact(s, "moved_by_rules", plain.Size(m.reached)))
	}
	if by != "" {
		d.Evidence = append(d.Evidence, finding.Fact(s, "ages_from", by))
	}
	if len(m.why) > 0 {
		monitored(x, d, s, b)
		d.Fix.Note = strings.Join(m.why[:min(len(m.why), 3)], "; ")
		if m.left > 0 {
			d.Evidence = append(d.Evidence, finding.Fact(s, "left_to_rules", plain.Size(m.left)))
		}
		if len(m.rules) == 0 {
			d.Stands, d.Savings = true, finding.Saving{Known: true}
			return d
		}
	}
	if m.expire.Bytes > 0 {
		d.Fix.Risk, d.Fix.Undo = finding.Medium, finding.UndoNone
		d.Fix.Note = finding.Sentence(d.Fix.Note,
			"expires experiments after "+plain.Count(x.Thresholds.ExpireDays, "day")+
				": expired objects are gone")
		if b.Versioned.Or(true) {
			d.Unknown = "in a versioned bucket expired objects are still charged as noncurrent versions until a rule expires those"
		}
		protect(d, s, b)
	}
	m.weigh(&d.Fix)
	switch {
	case !all:
		return unseen(x, d, s, b, &m, total, enabled > 0 && !known)
	case m.perhaps > 0:
		narrowed := "rules that tags or dates narrow may move " + plain.Size(m.perhaps) + " of it already"
		d.Unknown = finding.Sentence(narrowed, d.Unknown)
		most := m
		most.archive.Bytes += m.perhaps
		if !expiresVersions(b, &m) {
			atLeast(x, d, s, b, &m)
		}
		priceMoves(x, d, s, b, &most)
		return d
	}
	priceMoves(x, d, s, b, &m)
	return d
}

// bucketReaders returns the known readers of a bucket's data. If an analysis of the whole bucket
// shows reads of old objects, some unknown part of it is read.
func bucketReaders(x *finding.Index, s *finding.Subject, b *inventory.Bucket, size int64) []finding.Reader {
	readers := x.Readers(s, size)
	for _, p := range b.Prefixes.Or(nil) {
		if !p.LoggedRead.IsZero() {
			readers = append(readers, finding.Reader{
				Prefix: p.Name, By: "the access log shows a read on " + p.LoggedRead.Format(time.DateOnly),
			})
		}
	}
	if whole, analyzed := b.Ages.Get(); analyzed {
		if by := readBy(nil, &whole); by != "" {
			readers = append(readers, finding.Reader{By: by + " (" + b.AgesSource + ")"})
		}
	}
	return readers
}

// unseen prices a bucket with an incomplete listing: at least the objects listed as old, at most
// all that no existing rule moves, archived.
func unseen(x *finding.Index, d *finding.Draft, s *finding.Subject, b *inventory.Bucket, m *moves, total int64,
	blind bool) *finding.Draft {
	d.Confidence = finding.Medium
	keeps, unknown := d.Unknown, "how old the objects are is not known; all of them archived"
	if blind {
		d.Confidence = finding.Low // which part of it the rules move is unknown too
		unknown = "how old the objects are is not known, nor which of them the rules move; all of them archived"
	}
	if m.bytes() > 0 && !expiresVersions(b, m) {
		atLeast(x, d, s, b, m)
	}
	most := moves{expire: m.expire}
	most.archive.Bytes = max(0, total-m.reached-m.kept-m.expire.Bytes)
	if whole, analyzed := b.Ages.Get(); analyzed {
		old := older(&whole, x.Thresholds.InfrequentDays).Bytes
		// the listing is newer
		most.archive.Bytes = min(most.archive.Bytes, max(old-m.expire.Bytes, m.archive.Bytes+m.infrequent.Bytes))
		unknown = "where the old objects of the bucket are is not known; all of them archived"
		d.Evidence = append(d.Evidence, finding.Fact(s, "old_bytes", plain.Size(old)),
			finding.Fact(s, "old_bytes_from", b.AgesSource))
	}
	d.Unknown = finding.Sentence(unknown, keeps)
	priceMoves(x, d, s, b, &most)
	return d
}

// expiresVersions reports whether expired objects may still cost as noncurrent versions.
func expiresVersions(b *inventory.Bucket, m *moves) bool {
	return m.expire.Bytes > 0 && b.Versioned.Or(true)
}

// atLeast adds the minimum saving of the moves to a draft with a bounded saving.
func atLeast(x *finding.Index, d *finding.Draft, s *finding.Subject, b *inventory.Bucket, m *moves) {
	if monthly, _, err := worth(x, s, b, m); err == nil && monthly > 0 {
		d.Least = monthly
		d.Evidence = append(d.Evidence, finding.Priced("monthly_saving_at_least_usd", monthly, "price book"))
	}
}

// worth returns the monthly saving of the moves at the present sizes, and their one-time cost.
func worth(x *finding.Index, s *finding.Subject, b *inventory.Bucket, m *moves) (monthly, fees money.Amount,
	err error) {
	saved, err := standardSaved(x, s, b, m.bytes())
	if err != nil {
		return 0, 0, err
	}
	keeps := money.Amount(0)
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
	return max(0, saved-keeps), fees, err
}

// priceMoves adds the monthly saving and the one-time cost of the moves to a draft, as evidence,
// note and claim.
func priceMoves(x *finding.Index, d *finding.Draft, s *finding.Subject, b *inventory.Bucket, m *moves) {
	monthly, fees, err := worth(x, s, b, m)
	if err != nil {
		d.NoPrice(s, err)
		return
	}
	explain(x, d, s, m, monthly, fees)
	if !d.ClaimAmount(s, standardMeter, monthly, finding.SavingsOnly) {
		d.NoPrice(s, nil)
		return
	}
	if monthly == 0 {
		d.Stands, d.Savings = true, finding.Saving{Known: true}
	}
}

// explain describes the moves of a proposal, their one-time cost, and the conditions of the colder
// classes.
func explain(x *finding.Index, d *finding.Draft, s *finding.Subject, m *moves, monthly, fees money.Amount) {
	for _, part := range []struct {
		signal string
		stored
	}{
		{"to_infrequent_access", m.infrequent}, {"to_archive", m.archive}, {"to_expire", m.expire},
		{"small_objects_stay", m.small},
	} {
		if part.Bytes > 0 {
			v := plain.Size(part.Bytes)
			if part.Objects > 0 {
				v += " in " + plain.Count(part.Objects, "object")
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
		d.Fix.Note = finding.Sentence(d.Fix.Note, plain.Count(m.small.Objects, "object")+" under 128 KiB do not move")
	}
	switch {
	case fees == 0 && m.infrequent.Objects+m.archive.Objects == 0 && m.infrequent.Bytes+m.archive.Bytes > 0:
		d.Fix.Note = finding.Sentence("moving costs a fee for each object, whose number is not known", d.Fix.Note)
	case fees > 0 && monthly > 0:
		months := money.Ratio(fees, monthly)
		d.Evidence = append(d.Evidence, finding.Priced("transition_fees_usd", fees, "price book"),
			usage.Fact("months_to_repay_fees", plain.Decimal(months, 1), "price book"))
		d.Fix.Note = finding.Sentence("moving costs "+fees.Dollars()+" once, repaid in "+
			plain.Number(months, 1)+" months",
			d.Fix.Note)
	case fees > 0:
		d.Evidence = append(d.Evidence, finding.Priced("transition_fees_usd", fees, "price book"))
		d.Fix.Note = finding.Sentence("moving costs "+fees.Dollars()+" once and saves nothing", d.Fix.Note)
	}
	if monthly > 0 {
		d.Evidence = append(d.Evidence, finding.Priced("monthly_saving_before_fees_usd", monthly, "price book"))
	}
}

// colder adds the minimum billed time of a class and its price for reading to the notes.
func colder(x *finding.Index, d *finding.Draft, s *finding.Subject, class string, least int) {
	d.Evidence = append(d.Evidence, finding.Fact(s, "least_days_"+class, plain.Decimal(float64(least), 0)))
	note := class + " bills at least " + plain.Count(least, "day")
	if p, err := x.Rate(price.Item("s3:retrieval:"+class), s.Region); err == nil && p.Rate > 0 {
		note += ", reading it back costs $" + p.Rate.String() + " a GiB"
		d.Evidence = append(d.Evidence, usage.Fact("retrieval_usd_per_gib_"+class, p.Rate.String(), p.Source))
	}
	if class == "GLACIER" {
		note += " and takes hours"
	}
	d.Fix.Note = finding.Sentence(d.Fix.Note, note)
}
