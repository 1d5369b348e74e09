package capacity

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/plan"
)

// Profile is how long a batch takes: of n items, PerItem·n + Base. Both are 0 to 1 h.
type Profile struct{ PerItem, Base time.Duration }

// Batch returns what a batch of n items takes, in seconds.
func (p Profile) Batch(n int) float64 { return p.PerItem.Seconds()*float64(n) + p.Base.Seconds() }

// ParseProfile reads a profile: "a=1ms,b=10ms". One of the two may be absent and is 0.
func ParseProfile(text string) (Profile, error) {
	var p Profile
	seen := map[string]bool{}
	for field := range strings.SplitSeq(text, ",") {
		key, value, found := strings.Cut(field, "=")
		key = strings.TrimSpace(key)
		if !found || (key != "a" && key != "b") || seen[key] {
			return Profile{}, fmt.Errorf("%q is not a profile; write a=1ms,b=10ms", text)
		}
		seen[key] = true
		d, err := time.ParseDuration(strings.TrimSpace(value))
		if err != nil || d < 0 || d > time.Hour {
			return Profile{}, fmt.Errorf("%q: %s=%q is not a time from 0s to 1h", text, key, value)
		}
		if key == "a" {
			p.PerItem = d
		} else {
			p.Base = d
		}
	}
	if p == (Profile{}) {
		return Profile{}, fmt.Errorf("%q: a batch must take time: set a or b above 0", text)
	}
	return p, nil
}

// ParseHeadroom reads a share from 0 to below 1: "20%" or "0.2".
func ParseHeadroom(text string) (float64, error) {
	digits, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	v, err := strconv.ParseFloat(digits, 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v < 1) {
		return 0, fmt.Errorf("%q is not a headroom: write a percentage from 0%% to below 100%%, such as 20%%", text)
	}
	return v, nil
}

// Arrivals are recorded requests.
type Arrivals struct {
	// Times are seconds from the first one, in order.
	Times []float64
	// Sizes are the items of each, 1 and up; nil if every request has one.
	Sizes []int
}

// Rate returns requests per second: the number of gaps divided by the time from the first to the
// last request. It is +Inf if that time is 0, and 0 for fewer than two.
func (a *Arrivals) Rate() float64 {
	if len(a.Times) < 2 {
		return 0
	}
	return float64(len(a.Times)-1) / (a.Times[len(a.Times)-1] - a.Times[0])
}

// Bounds of a file of arrivals: 285 years, which a Duration holds, and as many requests
// as fit into memory well.
const (
	maxSeconds  = 9e9
	maxArrivals = 20_000_000
)

// ArrivalsFile is a file of requests, in time order. It has one of the columns of time.
var ArrivalsFile = plan.Layout{
	Optional: []plan.Column{
		{Name: "time", Doc: "arrival of a request, RFC 3339"},
		{Name: "seconds", Doc: "arrival in seconds from 0"},
		{Name: "t_s", Doc: "arrival in seconds from 0"},
		{Name: "size", Doc: "items of the request, 1 to 1,000,000; 1 where it is absent"},
	},
	Others: true,
}

// ReadArrivals reads CSV with a row for each request, in time order: a column time (RFC 3339), or
// seconds or t_s (a number from 0), and where requests differ in it a column size (items, 1 to
// 1,000,000). Other columns are passed over. Mistakes are a [*plan.FileError] with line and column.
func ReadArrivals(name string, r io.Reader) (*Arrivals, error) {
	a := &Arrivals{}
	var start time.Time
	sized, timed := 0, ""
	layout := ArrivalsFile
	err := plan.ReadCSV(name, r, layout, func(row plan.Row) error {
		if len(a.Times) == maxArrivals {
			return fmt.Errorf("more than %d arrivals", maxArrivals)
		}
		column, err := stamp(row, timed)
		if err != nil {
			return err
		}
		if timed != "" && column != timed {
			return row.Error(timed, "%s is empty, but earlier rows have it", timed)
		}
		at := 0.0
		if timed = column; column == "time" {
			t, err := time.Parse(time.RFC3339Nano, row.Text("time"))
			if err != nil {
				return row.Error("time", "time %q is not RFC 3339, such as 2006-01-02T15:04:05.999Z", row.Text("time"))
			}
			if len(a.Times) == 0 {
				start = t
			}
			if at = t.Sub(start).Seconds(); at > maxSeconds {
				return row.Error("time", "time %q is centuries after the first", row.Text("time"))
			}
		} else if at, err = row.Float(column, 0, maxSeconds); err != nil {
			return err
		}
		if n := len(a.Times); n > 0 && at < a.Times[n-1] {
			return row.Error(column, "%s is before the row above: sort the arrivals by time", column)
		}
		a.Times = append(a.Times, at)
		if size := row.Text("size"); size != "" || sized > 0 {
			n, err := row.Int("size", 1, maxBatchMax)
			if err != nil {
				return err
			}
			if sized++; sized != len(a.Times) {
				return row.Error("size", "earlier rows have no size")
			}
			a.Sizes = append(a.Sizes, int(n))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(a.Times) == 0 {
		return nil, &plan.FileError{File: name, Reason: "no arrivals"}
	}
	first := a.Times[0]
	for i := range a.Times {
		a.Times[i] -= first
	}
	return a, nil
}

// stamp names the column that says when a request came; before is that of the rows
// above.
func stamp(row plan.Row, before string) (string, error) {
	found := ""
	for _, c := range []string{"time", "seconds", "t_s"} {
		switch {
		case row.Text(c) == "":
		case found != "":
			return "", row.Error(c, "both %s and %s give the time of the request: keep one", found, c)
		default:
			found = c
		}
	}
	if found == "" {
		return "", row.Error(before,
			"the time of the request is missing: add a column time (RFC 3339) or seconds, without empty fields")
	}
	return found, nil
}
