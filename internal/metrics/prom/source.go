package prom

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/metrics/httpapi"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Options choose the data to read of a server.
type Options struct {
	Access
	// Select are matchers that every series has to meet: `cluster="prod"`; empty: none.
	Select string
	// Names are further metrics, as columns of recorded usage with a factor:
	// {"my_gpu_busy_ratio": "gpu_util*100"}.
	Names map[string]string
	// Machines are the labels that name machines where the usual ones do not.
	Machines []Rule
	// Left, where it is not nil, is told how many readings of a signal on a machine a measurement
	// left out because they cannot be true.
	Left func(machine string, signal usage.Signal, n int)
	// Series is shared by sources that read the same servers; nil: this one asks by itself.
	Series *Series
}

// Source is a Prometheus-compatible server as a source of usage. It serves one goroutine
// at a time.
type Source struct {
	server *server
	words  dictionary
	where  string // matchers, with a comma before them; empty: none
	found  *directory
	// every is the time between two samples of a meter, as it was seen last.
	every map[meterKey]time.Duration
	// maxRaw is [maxRaw], which tests change.
	maxRaw float64
	// near is which series were found last.
	near   nearby
	series *Series
	left   func(machine string, signal usage.Signal, n int)
	// impossible counts the readings that were left out because they cannot be true.
	impossible int
	// holders are whom GPUs were lent to.
	holders map[inventory.Ref]map[Holder]bool
}

// meterKey is one signal of one GPU or machine.
type meterKey struct {
	ref    inventory.Ref
	gpu    string
	signal usage.Signal
}

// New returns a source. It makes no request.
func New(o Options) (*Source, error) {
	s, err := newServer(o.Access)
	if err != nil {
		return nil, err
	}
	words, err := newDictionary(o.Names)
	if err != nil {
		return nil, err
	}
	rules, err := newRules(o.Machines)
	if err != nil {
		return nil, err
	}
	out := &Source{
		server: s, words: words, found: newDirectory(rules), every: map[meterKey]time.Duration{}, maxRaw: maxRaw,
		holders: map[inventory.Ref]map[Holder]bool{}, series: o.Series, left: o.Left,
	}
	if out.series == nil {
		out.series = &Series{}
	}
	if where := strings.Trim(strings.TrimSpace(o.Select), "{}"); where != "" {
		out.where = "," + where
	}
	return out, nil
}

// Name implements [usage.Source].
func (s *Source) Name() string { return "prometheus " + s.server.api.Host() }

// sourceName is the source of points, for evidence.
const sourceName = "prometheus"

// Asked returns what reading has cost so far.
func (s *Source) Asked() Asked { return s.server.asked() }

// Impossible returns how many readings were left out so far because they cannot be true.
func (s *Source) Impossible() int { return s.impossible }

// Unmatched returns the names by which series call machines that are not there, and those
// by which their labels call two.
func (s *Source) Unmatched() (unknown, ambiguous []string) { return s.found.noted() }

const (
	// fineLength is the longest interval of which every sample is read; of a longer one the
	// least, the mean, the most and the number of samples of each step are.
	fineLength = 25 * time.Hour
	// fineChunk and coarseChunk are how much of an interval one query asks for at first,
	// leastChunk is the least.
	fineChunk   = 2 * time.Hour
	coarseChunk = 7 * 24 * time.Hour
	leastChunk  = 5 * time.Minute
	// defaultStep is that of an interval that names none.
	defaultStep = time.Minute
	// maxRaw is how many samples are read one by one of a long interval: a server reads each of
	// them once then, and once for every statistic otherwise.
	maxRaw = 16_000_000
	// smallAnswer is the size of an answer after which more is asked for at once: what an answer
	// costs a server is mostly its number of series.
	smallAnswer = 16 << 20
	// settling is how far back a long interval looks for the time between two samples.
	settling = 20 * time.Minute
	// future is how far ahead samples are looked for, which no exporter can have measured yet.
	future = 2 * time.Hour
)

// Measure implements [usage.Source].
func (s *Source) Measure(ctx context.Context, resources []*inventory.Resource, iv usage.Interval,
	open func(*inventory.Resource, usage.SourceInfo) usage.Sink) (usage.MeasureResult, error) {
	var measured []*inventory.Resource
	for _, r := range resources {
		if t := r.Kind.Traits(); t.Measured && t.Compute {
			measured = append(measured, r)
		}
	}
	if len(measured) == 0 || !iv.To.After(iv.From) {
		return usage.MeasureResult{}, nil
	}
	s.found.know(measured)
	r := &reading{
		Source: s, iv: iv, open: open, here: map[inventory.Ref]*inventory.Resource{}, sinks: map[sinkKey]usage.Sink{},
		ahead: map[inventory.Ref]time.Time{}, utilized: map[gpuKey]bool{}, divided: map[gpuKey]bool{},
		impossible: map[impossibleKey]int{}}
	if r.iv.Step <= 0 {
		r.iv.Step = defaultStep
	}
	for _, x := range measured {
		r.here[x.Ref()] = x
		delete(s.holders, x.Ref())
	}
	err := r.read(ctx)
	if ctx.Err() != nil {
		return usage.MeasureResult{}, context.Cause(ctx)
	}
	r.tellImpossible()
	m := usage.MeasureResult{BlindSpots: r.blindSpots(err)}
	if err != nil {
		m.Unread = map[inventory.Ref]string{}
		for ref := range r.here {
			m.Unread[ref] = s.Name() + " could not be read"
		}
	}
	return m, nil
}

// reading is one measurement.
type reading struct {
	*Source
	iv    usage.Interval
	open  func(*inventory.Resource, usage.SourceInfo) usage.Sink
	here  map[inventory.Ref]*inventory.Resource
	sinks map[sinkKey]usage.Sink
	// ahead are machines with samples of a time that is still to come.
	ahead map[inventory.Ref]time.Time
	// sampled counts steps of long intervals, thinned those of which the server keeps less
	// than half of the samples, until is the end of the last of them.
	sampled, thinned int
	until            time.Time
	// utilized are GPUs whose utilization was measured by itself.
	utilized map[gpuKey]bool
	// divided are GPUs in MIG mode, by their UUIDs and their places.
	divided map[gpuKey]bool
	// impossible are readings that cannot be true.
	impossible map[impossibleKey]int
	// only is a matcher that all series of GPUs meet that are of the machines in question, with
	// a comma before it; empty: none is known.
	only string
	// density is how many samples of GPUs there are in a second, at the end of a long interval.
	density float64
}

type gpuKey struct {
	ref inventory.Ref
	gpu string
}

type impossibleKey struct {
	machine string
	signal  usage.Signal
}

type sinkKey struct {
	ref  inventory.Ref
	step time.Duration
}

// tellImpossible reports the readings that were left out because they cannot be true.
func (r *reading) tellImpossible() {
	keys := slices.SortedFunc(maps.Keys(r.impossible), func(a, b impossibleKey) int {
		return cmp.Or(strings.Compare(a.machine, b.machine), cmp.Compare(a.signal, b.signal))
	})
	for _, k := range keys {
		if r.Source.impossible += r.impossible[k]; r.left != nil {
			r.left(k.machine, k.signal, r.impossible[k])
		}
	}
}

// read reads the interval. The first error ends it: what is missing then is unknown.
func (r *reading) read(ctx context.Context) error {
	short := r.iv.To.Sub(r.iv.From) <= fineLength
	if short {
		if err := r.narrow(ctx); err != nil {
			return err
		}
	}
	if err := r.lookAhead(ctx); err != nil {
		return err
	}
	if short {
		return r.fine(ctx)
	}
	return r.coarse(ctx)
}

// lookAhead finds machines whose exporters stamp their samples with a clock that is ahead.
// What they call now was measured long ago.
func (r *reading) lookAhead(ctx context.Context) error {
	const sure = httpapi.MaxSkew
	if now := r.server.Now; now != nil && now().Sub(r.iv.To) > sure {
		return nil // of the past, there are samples after it
	}
	query := fmt.Sprintf("last_over_time(%s[%s])", r.selector(r.asked()), seconds(future-sure))
	return r.server.instant(ctx, query, r.iv.To.Add(future), func(x series) error {
		if m := r.found.find(lower(x.Labels)); m != nil {
			r.ahead[m.Ref()] = r.iv.To
		}
		return nil
	})
}

// asked are the metrics that are asked for one by one: those that are read, and those that say
// which GPUs are in MIG mode.
func (r *reading) asked() []string { return append(r.words.names(), usage.MIGModeMetrics()...) }

// selector selects metrics by their names.
func (r *reading) selector(names []string) string {
	return `{__name__=~"` + strings.Join(names, "|") + `"` + r.where + r.only + "}"
}

func seconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) + "s" }

// chunks asks for parts of an interval, one after another in order of time, and for
// smaller ones where the server cannot answer.
func (r *reading) chunks(ctx context.Context, from, to time.Time, length, least *time.Duration,
	ask func(ctx context.Context, from, to time.Time) error) error {
	refused := false
	for from.Before(to) {
		before := r.server.asked().Bytes
		end := from.Add(*length)
		if end.After(to) {
			end = to
		}
		err := ask(ctx, from, end)
		if half := (min(*length, end.Sub(from)) / 2).Truncate(*least); errors.Is(err, errTooMuch) && half >= *least {
			*length, refused = half, true
			continue
		}
		if err != nil {
			return err
		}
		if from = end; !refused && *length < to.Sub(from) && r.server.asked().Bytes-before < smallAnswer {
			*length *= 2
		}
	}
	return nil
}

// fine reads every sample.
func (r *reading) fine(ctx context.Context) error {
	length, least := fineChunk, leastChunk
	err := r.chunks(ctx, r.iv.From, r.iv.To, &length, &least, func(ctx context.Context, from, to time.Time) error {
		var got batch
		// A second more, because newer servers leave the first moment of a range out.
		query := r.selector(r.asked()) + "[" + seconds(to.Sub(from)+time.Second) + "]"
		if err := r.server.instant(ctx, query, to, func(x series) error {
			got.add(r, x, from, to)
			return nil
		}); err != nil {
			return err
		}
		got.deliver(r)
		return nil
	})
	if err != nil {
		return err
	}
	step := max(r.iv.Step, time.Minute)
	for _, h := range hostExpressions {
		length, least := fineChunk, leastChunk
		err := r.chunks(ctx, r.iv.From.Truncate(step), r.iv.To.Truncate(step), &length, &least,
			func(ctx context.Context, from, to time.Time) error {
				var got batch
				query := "(" + r.expression(h, step*5/2) + ")[" + seconds(to.Sub(from)+time.Second) +
					":" + seconds(step) + "]"
				err := r.server.instant(ctx, query, to, func(x series) error {
					// A value at a time is of the step before it.
					got.addHost(r, h, x, step, from, to)
					return nil
				})
				if err != nil {
					return err
				}
				got.deliver(r)
				return nil
			})
		if err != nil {
			return err
		}
	}
	return nil
}

// expression returns the expression that computes a signal of the host.
func (r *reading) expression(h hostExpression, over time.Duration) string {
	return strings.NewReplacer("SELECT", r.where, "RANGE", seconds(over)).Replace(h.expr)
}

// statistics are queried for each step of a long interval. A metric without samples to count is not
// asked for the others.
var statistics = [...]string{"count", "max", "avg"}

// subStep is the step in which rates are taken whose peak within an hour is looked for.
const subStep = 5 * time.Minute

// counted is a metric, or an expression, of which statistics are asked: within a range, and
// how its series are taken.
type counted struct {
	of  string
	add func(got *batch, statistic string, x series)
}

// coarse reads the most, the mean and the number of the samples of every step.
func (r *reading) coarse(ctx context.Context) error {
	if err := r.settle(ctx); err != nil {
		return err
	}
	step := r.iv.Step
	from, to := r.iv.From.Truncate(step), r.iv.To.Truncate(step)
	length := max(coarseChunk.Truncate(step), step)
	samples := r.density * to.Sub(from).Seconds()
	raw := samples > 0 && samples <= r.maxRaw
	if raw {
		if err := r.raw(ctx, from, to); err != nil {
			return err
		}
	}
	// The metrics of one signal are delivered together, and utilization comes first.
	bySignal := map[usage.Signal][]counted{}
	for _, name := range r.words.names() {
		if raw {
			break
		}
		m := r.words[name]
		// A step ends before its last moment, in servers that count both ends of a range and in
		// those that count one.
		of := name + "{" + strings.TrimPrefix(r.where, ",") + "}[" + seconds(step) + "] offset 1ms"
		bySignal[m.Signal] = append(bySignal[m.Signal], counted{of, func(got *batch, statistic string, x series) {
			got.addStatistic(r, name, statistic, x)
		}})
	}
	for _, h := range hostExpressions {
		of := "(" + r.expression(h, subStep) + ")[" + seconds(step) + ":" + seconds(min(subStep, step)) + "]"
		bySignal[h.signal] = append(bySignal[h.signal], counted{of, func(got *batch, statistic string, x series) {
			got.addHostStatistic(r, h, statistic, x, step)
		}})
	}
	for _, signal := range slices.Sorted(maps.Keys(bySignal)) {
		err := r.chunks(ctx, from, to, &length, &step, func(ctx context.Context, from, to time.Time) error {
			var got batch
			over := ")[" + seconds(to.Sub(from)-step+time.Second) + ":" + seconds(step) + "]"
			for _, c := range bySignal[signal] {
				known := len(got.list)
				for i, statistic := range statistics {
					if i > 0 && len(got.list) == known {
						break
					}
					query := "(" + statistic + "_over_time(" + c.of + ")" + over
					if err := r.server.instant(ctx, query, to, func(x series) error {
						c.add(&got, statistic, x)
						return nil
					}); err != nil {
						return err
					}
				}
			}
			got.roll(step)
			got.deliver(r)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// raw reads the samples of the steps of a long interval one by one.
func (r *reading) raw(ctx context.Context, from, to time.Time) error {
	step := r.iv.Step
	length := max(fineChunk.Truncate(step), step)
	return r.chunks(ctx, from, to, &length, &step, func(ctx context.Context, from, to time.Time) error {
		var got batch
		query := r.selector(r.asked()) + "[" + seconds(to.Sub(from)+time.Second) + "]"
		if err := r.server.instant(ctx, query, to, func(x series) error {
			got.add(r, x, from, to)
			return nil
		}); err != nil {
			return err
		}
		for _, t := range got.list {
			t.points = inSteps(t.points, step)
		}
		got.deliver(r)
		return nil
	})
}

// settle sees in the newest samples how far they are apart.
func (r *reading) settle(ctx context.Context) error {
	from, to := r.iv.To.Add(-settling), r.iv.To
	var got batch
	query := r.selector(r.asked()) + "[" + seconds(settling) + "]"
	err := r.server.instant(ctx, query, to, func(x series) error { got.add(r, x, from, to); return nil })
	if errors.Is(err, errTooMuch) {
		r.density = math.Inf(1)
		return nil // then each step has to tell by itself
	}
	if err != nil {
		return err
	}
	for _, x := range got.list {
		r.density += float64(len(x.points)) / settling.Seconds()
	}
	got.identify(r)
	for _, m := range got.meters() {
		if d := apart(m.series[0].points); d > 0 {
			r.every[m.key] = d
		}
	}
	return nil
}

// sink returns where the points of a machine go.
func (r *reading) sink(m *inventory.Resource, step time.Duration) usage.Sink {
	k := sinkKey{m.Ref(), step}
	to, ok := r.sinks[k]
	if !ok {
		to = r.open(m, usage.SourceInfo{Step: step, Source: sourceName})
		r.sinks[k] = to
	}
	return to
}

// blindSpots lists the sources that could not be read, or were read and are not used.
func (r *reading) blindSpots(err error) []inventory.BlindSpot {
	var out []inventory.BlindSpot
	say := func(why, effect string) {
		out = append(out, inventory.BlindSpot{What: r.Name(), Why: why, Effect: effect})
	}
	if err != nil {
		say(err.Error(), "its measurements are unknown")
	}
	if w := r.server.warning; w != "" {
		say("it warns that its answer may be partial: "+w, "its omissions are unknown")
		r.server.warning = ""
	}
	if n := len(r.ahead); n > 0 {
		names := make([]string, 0, n)
		for ref := range r.ahead {
			names = append(names, ref.ID)
		}
		slices.Sort(names)
		say("samples of "+some(names)+" are stamped with a time that is still to come",
			"they are not used: samples that look new may be old")
	}
	if 2*r.thinned > r.sampled {
		say(fmt.Sprintf("up to %s it keeps less than half of the samples: they are down-sampled, or scrapes failed",
			plain.Time(r.until)),
			"rest in that time counts as unknown")
	}
	unknown, ambiguous := r.found.noted()
	if len(unknown) > 0 {
		say("no running machine has the name "+some(unknown),
			"their samples were not used; `curfew doctor metrics` says how to match them")
	}
	if len(ambiguous) > 0 {
		say("two machines fit the labels of "+some(ambiguous),
			"their samples were not used; `curfew doctor metrics` says how to match them")
	}
	return out
}

// some lists a few names.
func some(names []string) string {
	const most = 5
	if more := len(names) - most; more > 0 {
		return strings.Join(names[:most], ", ") + " and " + plain.Count(int64(more), "other")
	}
	return strings.Join(names, ", ")
}

var _ usage.Source = (*Source)(nil)
