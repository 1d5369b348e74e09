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

// Options select the data to read from a server.
type Options struct {
	Access
	// Select holds matchers that every series must meet: `cluster="prod"`; empty for none.
	Select string
	// Names maps further metrics to columns of recorded usage with a factor: {"my_gpu_busy_ratio":
	// "gpu_util*100"}.
	Names map[string]string
	// Machines are rules for labels that name machines in addition to the usual ones.
	Machines []Rule
	// Left, if not nil, is called with the number of impossible readings that were dropped for a
	// signal on a machine.
	Left func(machine string, signal usage.Signal, n int)
	// Series is shared by sources of the same servers; nil for a cache of its own.
	Series *Series
}

// Source is a Prometheus-compatible server as a source of usage. It serves one goroutine
// at a time.
type Source struct {
	server *server
	words  dictionary
	where  string // matchers with a leading comma; empty for none
	found  *directory
	// every is the last observed sampling interval of a meter.
	every map[meterKey]time.Duration
	// maxRaw is the constant of that name, except in tests.
	maxRaw float64
	// near caches the matcher for the wanted machines.
	near   nearby
	series *Series
	left   func(machine string, signal usage.Signal, n int)
	// impossible counts the dropped readings that cannot be true.
	impossible int
	// holders are the workloads that GPUs were allocated to.
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

// Asked returns the cost of all readings so far.
func (s *Source) Asked() Asked { return s.server.asked() }

// Impossible returns the number of readings dropped so far because they cannot be true.
func (s *Source) Impossible() int { return s.impossible }

// Unmatched returns the names in labels that match no machine, and those that match two.
func (s *Source) Unmatched() (unknown, ambiguous []string) { return s.found.unmatchedNames() }

const (
	// fineLength is the longest interval that is read sample by sample. For longer ones the
	// minimum, mean, maximum and count of each step are read.
	fineLength = 25 * time.Hour
	// fineChunk and coarseChunk are the initial range of one query, leastChunk is the minimum.
	fineChunk   = 2 * time.Hour
	coarseChunk = 7 * 24 * time.Hour
	minChunk    = 5 * time.Minute
	// defaultStep is the step of an interval without one.
	defaultStep = time.Minute
	// maxRaw is the maximum number of samples of a long interval that are read individually. The
	// server then reads each once instead of once per statistic.
	maxRaw = 16_000_000
	// smallAnswer is the response size in bytes below which the next query covers a longer range:
	// the cost of a query is mostly its number of series.
	smallAnswer = 16 << 20
	// intervalLookback is the lookback of a long interval to find the sampling interval.
	intervalLookback = 20 * time.Minute
	// futureLookahead is how far ahead of now samples are looked for; such samples show that an exporter's
	// clock is wrong.
	futureLookahead = 2 * time.Hour
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
	s.found.add(measured)
	r := &reading{
		Source: s, iv: iv, open: open, here: map[inventory.Ref]*inventory.Resource{}, sinks: map[sinkKey]usage.Sink{},
		clocksAhead: map[inventory.Ref]time.Time{}, utilized: map[gpuKey]bool{}, migGPUs: map[gpuKey]bool{},
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
	r.reportImpossible()
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
	// clocksAhead holds machines whose samples have timestamps in the future.
	clocksAhead map[inventory.Ref]time.Time
	// sampled counts the steps of long intervals, thinned those in which the server has less than
	// half of the samples; until is the end of the last thinned step.
	sampled, thinned int
	until            time.Time
	// utilized holds GPUs whose utilization was measured directly.
	utilized map[gpuKey]bool
	// migGPUs holds GPUs in MIG mode, by UUID and by index.
	migGPUs map[gpuKey]bool
	// impossible counts the readings that cannot be true.
	impossible map[impossibleKey]int
	// ownSeries is a matcher with a leading comma that selects the GPU series of the wanted machines;
	// empty if unknown.
	ownSeries string
	// density is the number of GPU samples per second at the end of a long interval.
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

// reportImpossible reports the readings that were dropped because they cannot be true.
func (r *reading) reportImpossible() {
	keys := slices.SortedFunc(maps.Keys(r.impossible), func(a, b impossibleKey) int {
		return cmp.Or(strings.Compare(a.machine, b.machine), cmp.Compare(a.signal, b.signal))
	})
	for _, k := range keys {
		if r.Source.impossible += r.impossible[k]; r.left != nil {
			r.left(k.machine, k.signal, r.impossible[k])
		}
	}
}

// read reads the interval. It stops at the first error; the rest is unknown.
func (r *reading) read(ctx context.Context) error {
	short := r.iv.To.Sub(r.iv.From) <= fineLength
	if short {
		if err := r.narrow(ctx); err != nil {
			return err
		}
	}
	if err := r.findClocksAhead(ctx); err != nil {
		return err
	}
	if short {
		return r.fine(ctx)
	}
	return r.coarse(ctx)
}

// findClocksAhead finds machines whose exporter's clock is ahead: their current samples are old.
func (r *reading) findClocksAhead(ctx context.Context) error {
	const sure = httpapi.MaxSkew
	if now := r.server.Now; now != nil && now().Sub(r.iv.To) > sure {
		return nil // in the past: later samples exist
	}
	query := fmt.Sprintf("last_over_time(%s[%s])", r.selector(r.queriedMetrics()), seconds(futureLookahead-sure))
	return r.server.instant(ctx, query, r.iv.To.Add(futureLookahead), func(x series) error {
		if m := r.found.find(lowerKeys(x.Labels)); m != nil {
			r.clocksAhead[m.Ref()] = r.iv.To
		}
		return nil
	})
}

// queriedMetrics returns the metrics to query, including those that report MIG mode.
func (r *reading) queriedMetrics() []string {
	return append(r.words.names(), usage.MIGModeMetrics()...)
}

// selector returns a selector of metrics by name.
func (r *reading) selector(names []string) string {
	return `{__name__=~"` + strings.Join(names, "|") + `"` + r.where + r.ownSeries + "}"
}

func seconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) + "s" }

// chunks queries consecutive parts of an interval in time order, and smaller ones if the server
// cannot answer.
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
	length, least := fineChunk, minChunk
	err := r.chunks(ctx, r.iv.From, r.iv.To, &length, &least, func(ctx context.Context, from, to time.Time) error {
		var got batch
		// One second more, because newer servers exclude the start of a range.
		query := r.selector(r.queriedMetrics()) + "[" + seconds(to.Sub(from)+time.Second) + "]"
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
		length, least := fineChunk, minChunk
		err := r.chunks(ctx, r.iv.From.Truncate(step), r.iv.To.Truncate(step), &length, &least,
			func(ctx context.Context, from, to time.Time) error {
				var got batch
				query := "(" + r.expression(h, step*5/2) + ")[" + seconds(to.Sub(from)+time.Second) +
					":" + seconds(step) + "]"
				err := r.server.instant(ctx, query, to, func(x series) error {
					// The value at a time covers the step before it.
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

// statistics are queried for each step of a long interval. If the count of a metric is empty, the
// others are skipped.
var statistics = [...]string{"count", "max", "avg"}

// subStep is the resolution at which the peak of a rate within an hour is found.
const subStep = 5 * time.Minute

// statisticQuery is a metric or expression with its range, and the function that adds its series.
type statisticQuery struct {
	of  string
	add func(got *batch, statistic string, x series)
}

// coarse reads the maximum, mean and count of every step.
func (r *reading) coarse(ctx context.Context) error {
	if err := r.detectInterval(ctx); err != nil {
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
	// The metrics of one signal are delivered together, utilization first.
	bySignal := map[usage.Signal][]statisticQuery{}
	for _, name := range r.words.names() {
		if raw {
			break
		}
		m := r.words[name]
		// End each step 1 ms early: servers differ in whether both ends of a range are included.
		of := name + "{" + strings.TrimPrefix(r.where, ",") + "}[" + seconds(step) + "] offset 1ms"
		bySignal[m.Signal] = append(bySignal[m.Signal], statisticQuery{
			of, func(got *batch, statistic string, x series) { got.addStatistic(r, name, statistic, x) },
		})
	}
	for _, h := range hostExpressions {
		of := "(" + r.expression(h, subStep) + ")[" + seconds(step) + ":" + seconds(min(subStep, step)) + "]"
		bySignal[h.signal] = append(bySignal[h.signal], statisticQuery{
			of, func(got *batch, statistic string, x series) { got.addHostStatistic(r, h, statistic, x, step) },
		})
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
			got.addSteps(step)
			got.deliver(r)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// raw reads the samples of a long interval individually.
func (r *reading) raw(ctx context.Context, from, to time.Time) error {
	step := r.iv.Step
	length := max(fineChunk.Truncate(step), step)
	return r.chunks(ctx, from, to, &length, &step, func(ctx context.Context, from, to time.Time) error {
		var got batch
		query := r.selector(r.queriedMetrics()) + "[" + seconds(to.Sub(from)+time.Second) + "]"
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

// detectInterval finds the sampling interval from the newest samples.
func (r *reading) detectInterval(ctx context.Context) error {
	from, to := r.iv.To.Add(-intervalLookback), r.iv.To
	var got batch
	query := r.selector(r.queriedMetrics()) + "[" + seconds(intervalLookback) + "]"
	err := r.server.instant(ctx, query, to, func(x series) error { got.add(r, x, from, to); return nil })
	if errors.Is(err, errTooMuch) {
		r.density = math.Inf(1)
		return nil // the interval is then determined step by step
	}
	if err != nil {
		return err
	}
	for _, x := range got.list {
		r.density += float64(len(x.points)) / intervalLookback.Seconds()
	}
	got.identify(r)
	for _, m := range got.meters() {
		if d := sampleInterval(m.series[0].points); d > 0 {
			r.every[m.key] = d
		}
	}
	return nil
}

// sink returns the sink for the points of a machine.
func (r *reading) sink(m *inventory.Resource, step time.Duration) usage.Sink {
	k := sinkKey{m.Ref(), step}
	to, ok := r.sinks[k]
	if !ok {
		to = r.open(m, usage.SourceInfo{Step: step, Source: sourceName})
		r.sinks[k] = to
	}
	return to
}

// blindSpots lists the data that could not be read or was not used.
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
	if n := len(r.clocksAhead); n > 0 {
		names := make([]string, 0, n)
		for ref := range r.clocksAhead {
			names = append(names, ref.ID)
		}
		slices.Sort(names)
		say("samples of "+firstNames(names)+" are stamped with a time that is still to come",
			"they are not used: samples that look new may be old")
	}
	if 2*r.thinned > r.sampled {
		say(fmt.Sprintf("up to %s it keeps less than half of the samples: they are down-sampled, or scrapes failed",
			plain.Time(r.until)),
			"rest in that time counts as unknown")
	}
	unknown, ambiguous := r.found.unmatchedNames()
	if len(unknown) > 0 {
		say("no running machine has the name "+firstNames(unknown),
			"their samples were not used; `curfew doctor metrics` says how to match them")
	}
	if len(ambiguous) > 0 {
		say("two machines fit the labels of "+firstNames(ambiguous),
			"their samples were not used; `curfew doctor metrics` says how to match them")
	}
	return out
}

// firstNames joins the first few names.
func firstNames(names []string) string {
	const most = 5
	if more := len(names) - most; more > 0 {
		return strings.Join(names[:most], ", ") + " and " + plain.Count(int64(more), "other")
	}
	return strings.Join(names, ", ")
}

var _ usage.Source = (*Source)(nil)
