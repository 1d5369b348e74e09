package capacity

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Law is the time of a request on a server that batches continuously (vLLM, SGLang, Text Generation
// Inference, llama.cpp): PerItem·c + Base while c requests run. So c / (PerItem·c + Base)
// requests are answered a second, at most 1 / PerItem.
type Law struct {
	Profile
	// Min and Max bound the running requests that were measured, 1 and up. A
	// request takes as long below Min as at Min, and above Max requests wait: nothing is extrapolated.
	Min, Max int
}

// Time returns what a request takes while c requests run, in seconds; c counts as Min to Max.
func (l Law) Time(c int) float64 { return l.Batch(min(max(c, l.Min), l.Max)) }

// Throughput returns the requests a second that a replica answers while c requests run.
func (l Law) Throughput(c int) float64 { return float64(min(c, l.Max)) / l.Time(c) }

const runningKey = "running"

// IsLaw reports whether the text of a profile is a [Law].
func IsLaw(text string) bool { return strings.Contains(text, runningKey) }

// ParseLaw reads a law: "a=48ms,b=1.74s,running=4-48" is a·c + b for 4 to 48 running requests, and
// "running=48" is for 1 to 48.
func ParseLaw(text string) (Law, error) {
	var line []string
	var l Law
	for field := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(field, "=")
		if strings.TrimSpace(key) != runningKey {
			line = append(line, field)
			continue
		}
		low, high, ranged := strings.Cut(strings.TrimSpace(value), "-")
		if !ranged {
			low, high = "1", low
		}
		from, err := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if errors.Join(err, err2) != nil || from < 1 || to < from || to > maxRunning || l.Max != 0 {
			return Law{}, fmt.Errorf("%q: running=%q is not a number of running requests from 1 to %d, such as 4-48",
				text, value, maxRunning)
		}
		l.Min, l.Max = from, to
	}
	var err error
	if l.Profile, err = ParseProfile(strings.Join(line, ",")); err != nil {
		return Law{}, err
	}
	return l, nil
}

// maxRunning bounds the running requests of one replica.
const maxRunning = 100_000

// check refuses a law that means nothing.
func (l Law) check() error {
	switch {
	case l.Min < 1 || l.Max < l.Min || l.Max > maxRunning:
		return fmt.Errorf("a law of %d to %d running requests: expected 1 to %d", l.Min, l.Max, maxRunning)
	case l.PerItem < 0 || l.Base < 0 || l.PerItem > time.Hour || l.Base > time.Hour || l.Profile == Profile{}:
		return fmt.Errorf("a request takes %s × running + %s: expected 0 to 1h each, and not 0 both", l.PerItem, l.Base)
	}
	return nil
}

// quickest is the least p99 latency of a law, in seconds: that of a request that runs alone. Work
// is exponential, so that one in 100 requests has more than ln 100 times the mean.
func (l Law) quickest() float64 { return math.Log(100) * l.Time(1) }
