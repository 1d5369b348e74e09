package round

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Recording is usage that was recorded outside the account.
type Recording interface {
	// Name is the file's name, for people.
	Name() string
	// Collect adds the samples to the sinks that resolve returns for a name; a nil sink ignores
	// them.
	Collect(ctx context.Context, resolve func(name string, step time.Duration) usage.Sink) (usage.Summary, error)
}

// recorded is a recording as a usage source. It identifies resources by their ids, names and
// aliases; a name shared by two resources identifies neither, even if only one of them is read
// again.
type recorded struct {
	Recording
	byName    map[string]*inventory.Resource
	ambiguous map[string]bool
}

// RecordedSource returns a recording as a usage source.
func RecordedSource(r Recording) usage.Source {
	return &recorded{Recording: r, byName: map[string]*inventory.Resource{}, ambiguous: map[string]bool{}}
}

// maxNames bounds the names in a blind spot.
const maxNames = 5

// Measure implements [usage.Source].
func (s *recorded) Measure(ctx context.Context, resources []*inventory.Resource, iv usage.Interval,
	open func(*inventory.Resource, usage.SourceInfo) usage.Sink) (usage.MeasureResult, error) {
	here := map[inventory.Ref]*inventory.Resource{}
	for _, r := range resources {
		if !r.Kind.Traits().Measured {
			continue
		}
		here[r.Ref()] = r
		for _, name := range slices.Concat([]string{r.ID, r.Name}, r.Aliases) {
			if known := s.byName[name]; known != nil && known.Ref() != r.Ref() {
				s.ambiguous[name] = true
			}
			s.byName[name] = r
		}
	}
	unmatched := map[string]bool{}
	_, err := s.Collect(ctx, func(name string, step time.Duration) usage.Sink {
		r := s.byName[name]
		if name == "" || r == nil || s.ambiguous[name] {
			if len(unmatched) < maxNames {
				unmatched[name] = true
			}
			return nil
		}
		if here[r.Ref()] == nil {
			return nil
		}
		sink := open(here[r.Ref()], usage.SourceInfo{Step: step, Source: "recorded"})
		if sink == nil {
			return nil
		}
		return intervalSink{sink, iv}
	})
	if err != nil || len(unmatched) == 0 {
		return usage.MeasureResult{}, err
	}
	return usage.MeasureResult{BlindSpots: []inventory.BlindSpot{{
		What:   "recorded usage " + s.Name(),
		Why:    "no single running resource has the id or name " + nameList(unmatched),
		Effect: "their samples were not used",
	}}}, nil
}

func nameList(set map[string]bool) string {
	list := slices.Sorted(maps.Keys(set))
	if len(list) == maxNames {
		list = append(list, "…")
	}
	return strings.Join(list, ", ")
}

// intervalSink drops points outside of an interval.
type intervalSink struct {
	usage.Sink
	iv usage.Interval
}

// Add implements [usage.Sink].
func (w intervalSink) Add(gpu string, s usage.Signal, p usage.Point) bool {
	return !p.Time.Before(w.iv.From) && p.Time.Before(w.iv.To) && w.Sink.Add(gpu, s, p)
}
