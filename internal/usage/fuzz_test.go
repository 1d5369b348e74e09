package usage

import (
	"bytes"
	"context"
	"errors"
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// checkRead checks the promises of every reader for any input: it terminates, every error is a
// one-line *FileError, and every value is within its signal's range.
func checkRead(t *testing.T, data []byte, f Format) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	defer func() {
		runtime.ReadMemStats(&after)
		most := uint64(8<<20 + 64*len(data))
		if isParquet(data[:min(4, len(data))]) {
			most += 2 * maxPageMemory // of one row group; a page is counted as decoded and as read
		}
		if cost := after.TotalAlloc - before.TotalAlloc; cost > most {
			t.Fatalf("%d bytes cost %d bytes of memory, more than %d", len(data), cost, most)
		}
	}()
	sum, err := Read(context.Background(), bytes.NewReader(data), f, func(s *Sample) error {
		if s.Resource == "" || s.Time.IsZero() {
			t.Fatalf("a sample without resource or time: %s", sampleText(s))
		}
		if d := s.Description; d != nil && (d.GPUs.Or(0) < 0 || d.GPUs.Or(0) > maxGPUs) {
			t.Fatalf("the resource has %d GPUs", d.GPUs.Or(0))
		}
		for sig := range numSignals {
			v, ok := s.Get(sig)
			if !ok {
				continue
			}
			if limit := sig.limit(); !(v >= 0) || math.IsInf(v, 0) || (limit > 0 && v > limit) {
				t.Fatalf("%s is %v", sig, v)
			}
		}
		return nil
	})
	if err != nil {
		var e *FileError
		if !errors.As(err, &e) {
			t.Fatalf("%v is no *FileError", err)
		}
		if e.Line < 0 || e.Column < 0 || strings.ContainsAny(e.Reason, "\n") {
			t.Fatalf("%q is not one line", err)
		}
	}
	if sum.Rows < 0 || sum.Last.Before(sum.First) || sum.Step < 0 {
		t.Fatalf("summary is %+v", sum)
	}
}

func FuzzReadCSV(f *testing.F) {
	for _, s := range []string{
		"resource,time,gpu,gpu_util\na,2026-07-01T00:00:00Z,0,5\n", "pod,t_s,gpu_util_pct\na,0,5\na,57,\n",
		"resource,time,tags\n\"a\"\"b\",1e3,\"{\"\"k\"\":\"\"v\"\"}\"\n",
		"\xef\xbb\xbfresource,time\r\n\"x\ny\",0\r\n",
		"resource,time,sm_active\na,0,[N/A]\n",
		"resource,time,received,launched,gpus,environment\na,0,5,1e3,8,Prod\na,0,,2026-07-01T00:00:00Z,nan,\n",
	} {
		f.Add([]byte(s))
	}
	f.Add(bomb(f, "resource,time\na,0\n", 1<<20))
	f.Add([]byte(strings.Repeat("\x00", 1<<19)))
	f.Add([]byte("resource,time" + strings.Repeat(",a", 1<<12)))
	f.Fuzz(func(t *testing.T, data []byte) {
		checkRead(t, data, Format{})
		checkRead(t, data, Format{Resource: "r", Map: map[string]string{"time": "t_s", "gpu_util": "gpu_util_pct"}})
	})
}

func FuzzReadNvidiaSMI(f *testing.F) {
	for _, s := range []string{
		"timestamp, uuid, utilization.gpu [%], memory.used [MiB]\n2026/07/01 00:00:00.250, GPU-a, 37 %, 1024 MiB\n",
		"timestamp, index, power.draw [W], memory.total [MiB]\n2026/07/01 00:00:00.250, 0, [N/A], 81920\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkRead(t, data, Format{Resource: "i-1"}) })
}

func FuzzReadParquet(f *testing.F) {
	f.Add(benchParquet(f, 3))
	f.Add([]byte("PAR1PAR1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 || !bytes.HasPrefix(data, []byte("PAR1")) {
			return
		}
		checkRead(t, data, Format{})
	})
}

func FuzzParseMap(f *testing.F) {
	for _, s := range []string{"resource=pod,time=t_s", "gpu_util=a=b", "=", ",", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := ParseMap(s)
		if err != nil {
			return
		}
		var pairs []string
		for ours, theirs := range m {
			if _, ok := columnNamed(ours); !ok || theirs == "" {
				t.Fatalf("%q maps %q to %q", s, ours, theirs)
			}
			pairs = append(pairs, ours+"="+theirs)
		}
		back, err := ParseMap(strings.Join(pairs, ","))
		if err != nil || len(back) != len(m) {
			t.Fatalf("%q reads as %v, printed and read again as %v, %v", s, m, back, err)
		}
		for ours, theirs := range m {
			if back[ours] != theirs {
				t.Fatalf("%q reads as %v, printed and read again as %v", s, m, back)
			}
		}
	})
}

// FuzzNumber compares the fast number parser with strconv.
func FuzzNumber(f *testing.F) {
	for _, s := range []string{
		"0", "-1.5", "99.667", "1e3", ".5", "5.", "123456789012345678", "0.1234567890123456789", "+2", "1_0", "0x1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseNumber([]byte(s))
		if err != nil {
			return
		}
		want, err := strconv.ParseFloat(s, 64)
		if err != nil || math.Float64bits(got) != math.Float64bits(want) {
			t.Fatalf("number(%q) = %v, strconv reads %v, %v", s, got, want, err)
		}
	})
}

// FuzzInstant compares the fast RFC 3339 parser with the time package.
func FuzzInstant(f *testing.F) {
	for _, s := range []string{
		"2026-07-01T00:00:00Z", "2026-02-29T00:00:00Z", "2024-02-29T23:59:59.123456789+05:30", "1782864000.5",
		"2026-07-01 00:00:00Z", "12", "1e9",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := (&decoder{layout: &layout{}}).parseInstant([]byte(s))
		// The time package also accepts one-digit hours and a decimal comma.
		want, parseErr := time.Parse(time.RFC3339Nano, s)
		if parseErr == nil && want.Format(time.RFC3339Nano) == s && err != nil {
			t.Fatalf("instant(%q): %v; want %s", s, err, want)
		}
		if err != nil {
			return
		}
		if got.Location() != time.UTC {
			t.Fatalf("instant(%q) is not in UTC", s)
		}
		if len(s) > 10 && s[10] == 'T' && !strings.HasSuffix(s, "z") && (parseErr != nil || !got.Equal(want)) {
			t.Fatalf("instant(%q) = %s; the time package reads %s, %v", s, got, want, parseErr)
		}
	})
}
