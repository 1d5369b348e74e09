package commit

import (
	"fmt"
	"strings"

	"github.com/curfew-dev/curfew/internal/money"
)

// buckets is the maximum number of intervals of a chart.
const buckets = 90

const onDemandName = "on demand"

// Layer is the use covered by one commitment, or on demand, in equal intervals of the window.
type Layer struct {
	Name string
	// Mean is the mean use in dollars per hour at on-demand prices, by interval.
	Mean []float64
	// OnDemand reports that no commitment covers it.
	OnDemand bool
}

// layers replays lines and returns the use that each covers.
func (d *demand) layers(lines []line) (outcome, []Layer, error) {
	per := (d.hours + buckets - 1) / buckets
	out := make([]Layer, len(lines)+1)
	for i := range out {
		out[i].Mean = make([]float64, (d.hours+per-1)/per)
		if i == len(lines) {
			out[i].Name, out[i].OnDemand = onDemandName, true
			break
		}
		l := lines[i]
		size := fmt.Sprint(l.level)
		if l.offer.Kind == SavingsPlan {
			size = money.Amount(l.level).Dollars() + "/h"
		}
		out[i].Name = strings.Join([]string{size, l.offer.Key, string(l.offer.Kind)}, " ")
		if l.existing != nil {
			out[i].Name += ", existing"
		}
	}
	o, err := d.replay(lines, func(t int, took, left []money.Amount) {
		share := 1 / float64(min(per, d.hours-t/per*per)) / float64(money.USD)
		for i, a := range took {
			out[i].Mean[t/per] += float64(a) * share
		}
		for _, a := range left {
			out[len(lines)].Mean[t/per] += float64(a) * share
		}
	})
	return o, out, err
}
