package usage

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// sampleText is a sample as text, for comparison.
func sampleText(s *Sample) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s", s.Resource, s.GPU, s.Time.Format(time.RFC3339Nano))
	for sig := range numSignals {
		if v, ok := s.Get(sig); ok {
			fmt.Fprintf(&b, " %s=%v", sig, v)
		}
	}
	if !s.Received.IsZero() {
		fmt.Fprintf(&b, " received=%s", s.Received.Format(time.RFC3339Nano))
	}
	if s.Description != nil {
		b.WriteString(" " + descriptionText(s.Description))
	}
	return b.String()
}

// descriptionText returns the fields of a description in braces.
func descriptionText(d *Description) string {
	var parts []string
	v := reflect.ValueOf(*d)
	for i := range v.NumField() {
		switch f := v.Field(i).Interface().(type) {
		case inventory.Fact[int]:
			if n, ok := f.Get(); ok {
				parts = append(parts, fmt.Sprintf("GPUs:%d", n))
			}
		case time.Time:
			if !f.IsZero() {
				parts = append(parts, v.Type().Field(i).Name+":"+f.Format(time.RFC3339Nano))
			}
		default:
			if !v.Field(i).IsZero() {
				parts = append(parts, fmt.Sprintf("%s:%v", v.Type().Field(i).Name, f))
			}
		}
	}
	return "{" + strings.Join(parts, " ") + "}"
}

func readAll(r io.Reader, f Format) ([]string, Summary, error) {
	var got []string
	sum, err := Read(context.Background(), r, f, func(s *Sample) error {
		got = append(got, sampleText(s))
		return nil
	})
	return got, sum, err
}

func TestReadCSV(t *testing.T) {
	epoch := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name   string
		in     string
		format Format
		want   []string
	}{
		{"RFC 3339", "resource,time,gpu,gpu_util\ni-1,2026-07-01T00:00:00Z,0,42.5\n", Format{},
			[]string{"i-1 0 2026-07-01T00:00:00Z gpu_util=42.5"}},
		{"offset, fraction, space for T", "resource,time,cpu_util\ni-1,2026-07-01 02:00:00.25+02:00,7\n", Format{},
			[]string{"i-1  2026-07-01T00:00:00.25Z cpu_util=7"}},
		{"seconds since 1970", "resource,time,gpu_util\ni-1,1782864000,1\ni-1,1.782864057e9,2\n", Format{},
			[]string{"i-1  2026-07-01T00:00:00Z gpu_util=1", "i-1  2026-07-01T00:00:57Z gpu_util=2"}},
		{"seconds from the start, mapped columns", "pod,t_s,gpu_util_pct\na,0,0\na,57,99.5\n",
			Format{Map: map[string]string{"resource": "pod", "time": "t_s", "gpu_util": "gpu_util_pct"}, Epoch: epoch},
			[]string{"a  2026-07-01T00:00:00Z gpu_util=0", "a  2026-07-01T00:00:57Z gpu_util=99.5"}},
		{
			"a map wins over the column of that name", "resource,time,gpu_util,real\na,0,1,2\n",
			Format{Map: map[string]string{"gpu_util": "real"}},
			[]string{"a  1970-01-01T00:00:00Z gpu_util=2"}},
		{
			"no resource column", "time,gpu_util\n0,1\n", Format{Resource: "laptop"},
			[]string{"laptop  1970-01-01T00:00:00Z gpu_util=1"},
		},
		{
			"a time without a zone, in a given one", "resource,time,gpu_util\na,2026-07-01 02:00:00,1\n",
			Format{Location: time.FixedZone("", 7200)},
			[]string{"a  2026-07-01T00:00:00Z gpu_util=1"}},
		{
			"what is not measured",
			"resource,time,gpu_util,mem_used_bytes,power_w,cpu_util,sessions,sm_active\na,0,,NaN,[N/A],n/a,null,-1\n",
			Format{},
			[]string{"a  1970-01-01T00:00:00Z"}},
		{
			"sentinels", "resource,time,gpu_util,mem_used_bytes\na,0,9223372036854775794,2147483632\n", Format{},
			[]string{"a  1970-01-01T00:00:00Z"},
		},
		{
			"noise over the limit", "resource,time,gpu_util,sm_active\na,0,100.4,1.004\n", Format{},
			[]string{"a  1970-01-01T00:00:00Z gpu_util=100 sm_active=1"},
		},
		{"DCGM names", "resource,time,DCGM_FI_DEV_FB_USED,DCGM_FI_PROF_GR_ENGINE_ACTIVE\na,0,3,0.5\n", Format{},
			[]string{"a  1970-01-01T00:00:00Z gpu_util=50 gr_engine_active=0.5 mem_used_bytes=3.145728e+06"}},
		{
			"other columns are ignored", "x,resource,x,time,gpu_util\n\"1,2\",a,,0,1\n", Format{},
			[]string{"a  1970-01-01T00:00:00Z gpu_util=1"},
		},
		{"quotes", "resource,time,gpu_util\n\"a, \"\"b\"\"\",\"0\",1\n\"two\nlines\",0,1\n", Format{},
			[]string{`a, "b"  1970-01-01T00:00:00Z gpu_util=1`, "two\nlines  1970-01-01T00:00:00Z gpu_util=1"}},
		{
			"BOM, carriage returns, blank lines, spaces, no last line end",
			"\xef\xbb\xbfresource , time,gpu_util\r\n\r\n a ,0 , 1 \r\nb,0,2", Format{},
			[]string{"a  1970-01-01T00:00:00Z gpu_util=1", "b  1970-01-01T00:00:00Z gpu_util=2"}},
		{"a header in the middle", "resource,time,gpu_util\na,0,1\nresource,time,gpu_util\na,1,2\n", Format{},
			[]string{"a  1970-01-01T00:00:00Z gpu_util=1", "a  1970-01-01T00:00:01Z gpu_util=2"}},
		{"only a header", "resource,time,gpu_util\n", Format{}, nil},
		{"a repeated row counts once", "resource,time,gpu_util\na,0,1\na,0,1\nb,0,1\n", Format{},
			[]string{"a  1970-01-01T00:00:00Z gpu_util=1", "b  1970-01-01T00:00:00Z gpu_util=1"}},
		{
			"signals in rows of their own are one sample",
			"resource,time,gpu_util,power_w\na,0,1,\na,0,,300\na,1,2,\n",
			Format{},
			[]string{"a  1970-01-01T00:00:00Z gpu_util=1 power_w=300", "a  1970-01-01T00:00:01Z gpu_util=2"}},
		{
			"of a repeated row the larger value counts",
			"resource,time,gpu_util,power_w\na,0,1,9\na,0,7,\na,0,3,5\n", Format{},
			[]string{"a  1970-01-01T00:00:00Z gpu_util=7 power_w=9"}},
		{
			"what a sample was received at",
			"resource,time,gpu_util,received\na,0,1,5\na,0,2,1970-01-01T00:00:07Z\na,1,3,\na,2,3,NaN\n", Format{},
			[]string{
				"a  1970-01-01T00:00:00Z gpu_util=1 received=1970-01-01T00:00:05Z",
				"a  1970-01-01T00:00:00Z gpu_util=2 received=1970-01-01T00:00:07Z",
				"a  1970-01-01T00:00:01Z gpu_util=3", "a  1970-01-01T00:00:02Z gpu_util=3"}},
		{
			"GPUs, environment and launch",
			"resource,time,gpus,environment,launched\na,0,8,Prod,\nb,0,0.0,,1970-01-01T00:00:09Z\nc,0,,,12\n",
			Format{},
			[]string{
				"a  1970-01-01T00:00:00Z {Environment:prod GPUs:8}",
				"b  1970-01-01T00:00:00Z {GPUs:0 Launched:1970-01-01T00:00:09Z}",
				"c  1970-01-01T00:00:00Z {Launched:1970-01-01T00:00:12Z}"}},
		{"out of order", "resource,time,gpu_util\na,60,1\na,0,2\n", Format{},
			[]string{"a  1970-01-01T00:01:00Z gpu_util=1", "a  1970-01-01T00:00:00Z gpu_util=2"}},
		{
			"a description",
			"resource,time,kind,lifetime,purpose,type,team,project,user,tags\na,0,instance,ephemeral,training,p4d.24xlarge,vision,x,ana,Name=n;env = dev\n" +
				"a,1,instance,ephemeral,training,p4d.24xlarge,vision,x,ana,Name=n;env = " +
				"dev\nb,1,,,,,,,,\"{\"\"k\"\":\"\"v\"\"}\"\n", Format{},
			[]string{
				"a  1970-01-01T00:00:00Z {Kind:instance Lifetime:ephemeral Purpose:training Type:p4d.24xlarge " +
					"Team:vision " +
					"Project:x User:ana Tags:map[Name:n env:dev]}",
				"a  1970-01-01T00:00:01Z {Kind:instance Lifetime:ephemeral Purpose:training Type:p4d.24xlarge " +
					"Team:vision " +
					"Project:x User:ana Tags:map[Name:n env:dev]}",
				"b  1970-01-01T00:00:01Z {Tags:map[k:v]}"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, sum, err := readAll(strings.NewReader(tc.in), tc.format)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || sum.Rows+sum.Duplicates < len(tc.want) {
				t.Errorf("%d rows; samples differ (-want +got):\n%s", sum.Rows, diff)
			}
		})
	}
}

func TestReadRejectsInvalidFiles(t *testing.T) {
	const header = "resource,time,gpu_util\n"
	for _, tc := range []struct {
		name, in, want string
		format         Format
	}{
		{"no number", header + "a,0,1\na,1,abc\n", `u.csv:3:3: gpu_util "abc" is not a number`, Format{}},
		{"hexadecimal", header + "a,0,0x10\n", `u.csv:2:3: gpu_util "0x10" is not a number`, Format{}},
		{
			"a comma for the point, unquoted", header + "a,0,1,5\n", "u.csv:2: the row has 4 fields, 3 are expected",
			Format{},
		},
		{"infinite", header + "a,0,1e999\n", `"1e999" is not a number`, Format{}},
		{"negative", header + "a,0,-3\n", `u.csv:2:3: gpu_util "-3" is negative`, Format{}},
		{"over 100 %", header + "a,0,250\n", `gpu_util "250" is over 100`, Format{}},
		{"a share in percent", "resource,time,sm_active\na,0,55\n", `sm_active "55" is over 1: a share`, Format{}},
		{"absurd memory", "resource,time,mem_used_bytes\na,0,1e14\n", `is over 8 TiB`, Format{}},
		{
			"more used than there is", "resource,time,mem_used_bytes,mem_total_bytes\na,0,200,100\n",
			`u.csv:2: 200 of memory are used of 100`, Format{},
		},
		{
			"time as a word", header + "a,noon,1\n",
			`u.csv:2:2: time "noon" is neither an RFC 3339 time nor a number of seconds`, Format{},
		},
		{"no such day", header + "a,2026-02-29T00:00:00Z,1\n", `u.csv:2:2: time`, Format{}},
		{"no zone", header + "a,2026-07-01 00:00:00,1\n", `has no time zone`, Format{}},
		{"milliseconds", header + "a,1782864000000,1\n", `are these milliseconds?`, Format{}},
		{"time missing", header + "a,,1\n", `u.csv:2:2: time "" is neither`, Format{}},
		{"resource missing", header + ",0,1\n", `u.csv:2:1: the resource is empty`, Format{}},
		{"row cut short", header + "a,0,1\na,1\n", "u.csv:3: the row has 2 fields, 3 are expected", Format{}},
		{"open quote", header + "a,0,1\n\"a,0,1\n", "u.csv:3: a quote is not closed", Format{}},
		{"text after a quote", header + "\"a\"b,0,1\n", "u.csv:2: there is text after a closing quote", Format{}},
		{"empty file", "", "u.csv: the file is empty", Format{}},
		{"empty lines", "\n\n", "u.csv: the file is empty", Format{}},
		{
			"no time column", "resource,when,gpu_util\n",
			`u.csv:1: there is no column time; there are "resource", "when", "gpu_util"`, Format{},
		},
		{"no resource column", "time,gpu_util\n", `u.csv:1: there is no column resource`, Format{}},
		{
			"a column twice", "resource,time,gpu_util,gpu_util\n",
			`u.csv:1:4: column "gpu_util" gives gpu_util again, after column 3`, Format{},
		},
		{
			"a signal twice under two names", "resource,time,gpu_util,DCGM_FI_DEV_GPU_UTIL\n",
			`u.csv:1:4: column "DCGM_FI_DEV_GPU_UTIL" gives gpu_util again`, Format{},
		},
		{
			"a mapped column that is not there", header,
			`u.csv:1: there is no column "pod", which the map names for resource`,
			Format{Map: map[string]string{"resource": "pod"}},
		},
		{
			"a map of no column of ours", header, `the map names "pod"`,
			Format{Map: map[string]string{"pod": "resource"}},
		},
		{
			"one column mapped twice", header, `mapped to both gpu and resource`,
			Format{Map: map[string]string{"gpu": "resource", "resource": "resource"}},
		},
		{
			"kind misspelled", "resource,time,kind\na,0,intsance\n",
			`u.csv:2:3: kind "intsance" is no kind of resource`,
			Format{},
		},
		{
			"lifetime misspelled", "resource,time,lifetime\na,0,ephemral\n",
			`u.csv:2:3: lifetime "ephemral" is neither ephemeral nor persistent`, Format{},
		},
		{
			"purpose misspelled", "resource,time,purpose\na,0,trainning\n",
			`u.csv:2:3: purpose "trainning" is none of`,
			Format{},
		},
		{
			"half a GPU", "resource,time,gpus\na,0,1.5\n", `u.csv:2:3: gpus "1.5" is no whole number from 0 to 4096`,
			Format{},
		},
		{"GPUs as a word", "resource,time,gpus\na,0,eight\n", `u.csv:2:3: gpus "eight" is no whole number`, Format{}},
		{"too many GPUs", "resource,time,gpus\na,0,99999\n", `u.csv:2:3: gpus "99999" is no whole number`, Format{}},
		{
			"launched as a word", "resource,time,launched\na,0,1\na,1,noon\n",
			`u.csv:3:3: launched "noon" is neither an RFC 3339 time`, Format{},
		},
		{
			"received without a zone", "resource,time,received\na,0,2026-07-01 00:00:00\n",
			`u.csv:2:3: received "2026-07-01 00:00:00" has no time zone`, Format{},
		},
		{"tags without values", "resource,time,tags\na,0,x\n", `u.csv:2:3: tags "x" holds "x"`, Format{}},
		{"a tag twice", "resource,time,tags\na,0,x=1;x=2\n", `gives "x" twice`, Format{}},
		{"broken JSON tags", "resource,time,tags\na,0,{\n", `is not a JSON object`, Format{}},
		{"binary", "abc\x00def\n", "u.csv:1: this is no text", Format{}},
		{"zip", "PK\x03\x04aaaa", "only gzip is read", Format{}},
		{"broken gzip", "\x1f\x8b\x08\x00aaaa", "u.csv", Format{}},
		{
			"an endless line", header + strings.Repeat("x", maxLine+1), "u.csv:2: the line is over 262144 bytes long",
			Format{},
		},
		{"broken Parquet", "PAR1aaaaaaaaPAR1", "u.csv: the file is not valid Parquet", Format{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.format.Name = "u.csv"
			for _, r := range []io.Reader{strings.NewReader(tc.in), stream{strings.NewReader(tc.in)}} {
				_, _, err := readAll(r, tc.format)
				var e *FileError
				if !errors.As(err, &e) || !strings.Contains(err.Error(), tc.want) {
					t.Fatalf("got error %v, want one with %s", err, tc.want)
				}
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("the error is not one line: %q", err)
				}
			}
		})
	}
}

// TestSkipsSingleBadRow checks that one bad row does not reject the file and is reported
// with its line.
func TestSkipsSingleBadRow(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("resource,time,gpu_util\n")
	for i := range 1_000_000 {
		if i == 999_999 {
			b.WriteString("i-1,1782864000,abc\n")
			break
		}
		fmt.Fprintf(&b, "i-1,%d,5\n", 1_782_864_000+i)
	}
	rows := 0
	sum, err := Read(context.Background(), &b, Format{Name: "usage.csv"}, func(*Sample) error { rows++; return nil })
	if err != nil || rows != 1_000_000 || sum.BadRowCount != 1 || len(sum.BadRows) != 1 {
		t.Fatalf("%d rows, %+v, %v", rows, sum, err)
	}
	if got, want := sum.BadRows[0].Error(), `usage.csv:1000001:3: gpu_util "abc" is not a number`; got != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// endless generates rows forever.
type endless struct {
	n    int
	left []byte
}

func (e *endless) Read(p []byte) (int, error) {
	if len(e.left) == 0 {
		if e.n == 0 {
			e.left = []byte("resource,time,gpu,gpu_util,mem_used_bytes\n")
		} else {
			e.left = fmt.Appendf(nil, "i-%d,%d,0,%d,%d\n", e.n%16, 1_782_864_000+e.n, e.n%100, e.n)
		}
		e.n++
	}
	n := copy(p, e.left)
	e.left = e.left[n:]
	return n, nil
}

// TestMemoryIsIndependentOfFileSize reads 300,000 and then 600,000 rows of the same
// resources.
func TestMemoryIsIndependentOfFileSize(t *testing.T) {
	enough := errors.New("enough")
	w := NewWindow(time.Unix(1_782_864_000, 0), time.Unix(1_792_864_000, 0), time.Second, "test", nil)
	var heap [2]uint64
	rows := 0
	_, err := Read(context.Background(), &endless{}, Format{}, func(s *Sample) error {
		v, _ := s.Get(GPUUtil)
		w.Add(s.GPU, GPUUtil, Point{Time: s.Time, Mean: v, Max: v})
		rows++
		if rows%300_000 == 0 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			if heap[rows/300_000-1] = m.HeapAlloc; rows == 600_000 {
				return enough
			}
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Fatalf("reading ended with %v", err)
	}
	if grown := int64(heap[1]) - int64(heap[0]); grown > 1<<20 {
		t.Errorf("300,000 more rows hold %d more bytes", grown)
	}
}

func TestReadStopsOnCanceledContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Read(ctx, &endless{}, Format{}, func(*Sample) error {
		return nil
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestReadStopsOnCallbackError(t *testing.T) {
	stop := errors.New("stop")
	for name, r := range map[string]io.Reader{
		"CSV": bytes.NewReader(benchCSV(10)), "Parquet": bytes.NewReader(benchParquet(t, 10)),
	} {
		n := 0
		_, err := Read(context.Background(), r, Format{}, func(*Sample) error { n++; return stop })
		if !errors.Is(err, stop) || n != 1 {
			t.Errorf("%s: got %v after %d samples, want stop after 1", name, err, n)
		}
	}
}

func TestReadPropagatesCallbackPanic(t *testing.T) {
	defer func() {
		if p := recover(); p != "mine" {
			t.Errorf("recovered %v, want the caller's own panic", p)
		}
	}()
	_, err := Read(context.Background(), bytes.NewReader(benchParquet(t, 10)), Format{}, func(*Sample) error {
		panic("mine")
	})
	t.Errorf("the panic became %v", err)
}

// TestFormatsAgree reads the same samples from every format.
func TestFormatsAgree(t *testing.T) {
	const rows = 20_000
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(benchCSV(rows)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "usage.parquet")
	if err := os.WriteFile(path, benchParquet(t, rows), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	want, wantSum, err := readAll(bytes.NewReader(benchCSV(rows)), Format{})
	if err != nil || len(want) != rows {
		t.Fatalf("%d rows, %v", len(want), err)
	}
	if wantSum.Step != 15*time.Second || wantSum.Resources != 4 || !wantSum.First.Equal(start) {
		t.Errorf("summary is %+v", wantSum)
	}
	for name, r := range map[string]io.Reader{
		"gzip": &packed, "Parquet": bytes.NewReader(benchParquet(t, rows)), "a Parquet file": file,
		"a Parquet stream": stream{bytes.NewReader(benchParquet(t, rows))},
	} {
		got, sum, err := readAll(r, Format{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" || !cmp.Equal(sum, wantSum) {
			t.Fatalf("%s differs: %+v and %+v\n%.500s", name, sum, wantSum, diff)
		}
	}
}

func TestReadParquetTypes(t *testing.T) {
	type row struct {
		Pod     string   `parquet:"pod"`
		Seconds float64  `parquet:"t_s"`
		GPU     int32    `parquet:"gpu"`
		Util    *float32 `parquet:"util,optional"`
		Memory  *int64   `parquet:"mem_used_bytes,optional"`
		SM      string   `parquet:"sm_active"`
		Team    *string  `parquet:"team,optional"`
		Ignored []int64  `parquet:"ignored,list"`
	}
	util, memory, team, nan := float32(12.5), int64(1<<30), "vision", float32(math.NaN())
	var b bytes.Buffer
	w := parquet.NewGenericWriter[row](&b, parquet.MaxRowsPerRowGroup(2))
	if _, err := w.Write([]row{
		{"a", 0, 3, &util, &memory, "0.5", &team, []int64{1}},
		{"a", 57.5, 3, nil, nil, "", nil, nil},
		{"a", 115, 3, &nan, nil, "NaN", &team, []int64{1, 2}},
	}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, sum, err := readAll(bytes.NewReader(b.Bytes()), Format{
		Map: map[string]string{"resource": "pod", "time": "t_s", "gpu_util": "util"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"ignored.list.element"}; !slices.Equal(sum.UnknownColumns, want) {
		t.Errorf("unknown columns are %q, want %q", sum.UnknownColumns, want)
	}
	want := []string{
		"a 3 1970-01-01T00:00:00Z gpu_util=12.5 sm_active=0.5 mem_used_bytes=1.073741824e+09 {Team:vision}",
		"a 3 1970-01-01T00:00:57.5Z {}",
		"a 3 1970-01-01T00:01:55Z {Team:vision}",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("samples differ (-want +got):\n%s", diff)
	}
}

// TestReadParquetDescriptions reads descriptions of resources in every type that programs write.
func TestReadParquetDescriptions(t *testing.T) {
	type row struct {
		Resource string     `parquet:"resource"`
		Time     int64      `parquet:"time"`
		GPUs     *float64   `parquet:"gpus,optional"`
		Received *float64   `parquet:"received,optional"`
		Launched *time.Time `parquet:"launched,optional,timestamp(millisecond)"`
	}
	eight, half, nan, launched, late := 8.0, 1.5, math.NaN(), at(1500*time.Millisecond), 61.25
	got, _, err := readAll(
		bytes.NewReader(parquetOf(t, []row{{"a", 60, &eight, &late, &launched}, {"a", 120, &nan, &nan, nil}})),
		Format{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"a  1970-01-01T00:01:00Z received=1970-01-01T00:01:01.25Z {GPUs:8 Launched:2026-07-01T00:00:01.5Z}",
		"a  1970-01-01T00:02:00Z {}",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("samples differ (-want +got):\n%s", diff)
	}
	_, _, err = readAll(bytes.NewReader(parquetOf(t, []row{{"a", 60, &half, nil, nil}})), Format{Name: "u.parquet"})
	if want := `u.parquet:1:3: gpus "1.5" is no whole number from 0 to 4096`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	type text struct {
		Resource string `parquet:"resource"`
		Time     string `parquet:"time"`
		GPUs     int32  `parquet:"gpus"`
		Received string `parquet:"received"`
		Launched int64  `parquet:"launched"`
	}
	got, _, err = readAll(bytes.NewReader(parquetOf(t, []text{{"a", "1970-01-01T00:01:00Z", 4, "90", 30}})), Format{})
	if want := []string{
		"a  1970-01-01T00:01:00Z received=1970-01-01T00:01:30Z {GPUs:4 Launched:1970-01-01T00:00:30Z}",
	}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

// TestUnknownColumns checks that all ignored columns are reported.
func TestUnknownColumns(t *testing.T) {
	for _, tc := range []struct {
		in     string
		format Format
		want   []string
	}{
		{"resource,time,gpu_util\n", Format{}, nil},
		{"resource,time,enviroment,gpu_util, note \n", Format{}, []string{"enviroment", "note"}},
		{"resource,time,gpu_util,real\n", Format{Map: map[string]string{"gpu_util": "real"}}, []string{"gpu_util"}},
		{"instance,timestamp,gpu,DCGM_FI_DEV_GPU_UTIL,modelName\n", Format{}, []string{"modelName"}},
		{"timestamp, name, uuid, utilization.gpu [%], index\n", Format{Resource: "a"}, []string{"name", "index"}},
	} {
		_, sum, err := readAll(strings.NewReader(tc.in), tc.format)
		if err != nil || !slices.Equal(sum.UnknownColumns, tc.want) {
			t.Errorf("%q: unknown columns are %q, %v; want %q", tc.in, sum.UnknownColumns, err, tc.want)
		}
	}
}

func TestReadRejectsInvalidParquet(t *testing.T) {
	type base struct {
		Resource string  `parquet:"resource"`
		Time     int64   `parquet:"time"`
		Util     float64 `parquet:"gpu_util"`
	}
	refused := func(name string, data []byte, want string) {
		t.Helper()
		_, _, err := readAll(bytes.NewReader(data), Format{Name: "u.parquet"})
		var e *FileError
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, want)
		}
	}
	refused("a value out of range", parquetOf(t, []base{{"a", 0, 5}, {"a", 60, 500}}),
		"u.parquet:2:3: gpu_util 500 is over 100")
	refused("an empty resource", parquetOf(t, []base{{"", 0, 5}}), "u.parquet:1:1: the resource is empty")
	refused("milliseconds", parquetOf(t, []base{{"a", 1_782_864_000_000, 5}}), "milliseconds")
	type flags struct {
		Resource string `parquet:"resource"`
		Time     int64  `parquet:"time"`
		Util     bool   `parquet:"gpu_util"`
	}
	refused("a flag for a number", parquetOf(t, []flags{{"a", 0, true}}), "gpu_util is stored as BOOLEAN")
	whole := parquetOf(t, []base{{"a", 0, 5}, {"a", 60, 50}})
	for i := range whole {
		if _, _, err := readAll(bytes.NewReader(whole[:i]), Format{}); err == nil {
			t.Errorf("the first %d of %d bytes read without error", i, len(whole))
		}
	}
}

// TestDamagedParquet changes a few bytes at a time.
func TestDamagedParquet(t *testing.T) {
	whole := benchParquet(t, 3)
	random := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		data := bytes.Clone(whole)
		for range 1 + random.IntN(4) {
			data[4+random.IntN(len(data)-4)] = byte(random.Uint32())
		}
		checkRead(t, data, Format{})
	}
}

func parquetOf[T any](tb testing.TB, rows []T) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[T](&b)
	if _, err := w.Write(rows); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func TestCollect(t *testing.T) {
	in := "resource,time,gpu,gpu_util,net_bytes\n" +
		"a,0,0,10,100\na,0,1,0,100\na,60,0,20,100\na,60,1,0,100\n" + // both GPUs' rows repeat the machine's traffic
		"b,0,0,5,1\n"
	epoch := start
	w := NewWindow(start, at(2*time.Minute), time.Minute, "recorded", nil)
	asked := map[string]int{}
	sum, err := Collect(context.Background(), strings.NewReader(in), Format{Epoch: epoch, Step: time.Minute},
		func(r string) Sink {
			asked[r]++
			if r == "a" {
				return w
			}
			return nil
		})
	if err != nil || sum.Rows != 5 || sum.Resources != 2 || asked["a"] != 1 || asked["b"] != 1 {
		t.Fatalf("%+v, %v; asked for %v", sum, err, asked)
	}
	if len(w.GPUs) != 2 {
		t.Fatalf("the window has %d GPUs", len(w.GPUs))
	}
	util, net := w.GPUs[0].Stats(GPUUtil), w.Machine.Stats(NetBytes)
	if mean, _ := util.Mean(); mean != 15 || w.Coverage(util) != 1 {
		t.Errorf("GPU 0: mean %v, coverage %v; want 15, 1", mean, w.Coverage(util))
	}
	if net.Sum != 200 || net.Count != 2 {
		t.Errorf("the network carried %v bytes in %d samples, want 200 in 2", net.Sum, net.Count)
	}
}

func TestInferStep(t *testing.T) {
	for _, tc := range []struct {
		name, rows string
		want       time.Duration
	}{
		{"by resource", "a,0,1\nb,0,1\na,57,1\nb,57,1\na,171,1\na,228,1\nb,114,1\n", 57 * time.Second},
		{"one sample each", "a,0,1\nb,57,1\n", 0},
	} {
		got, err := InferStep(context.Background(), strings.NewReader("resource,time,gpu_util\n"+tc.rows), Format{})
		if got != tc.want || (err == nil) != (tc.want > 0) || (err != nil && !errors.Is(err, ErrNoSamples)) {
			t.Errorf("%s: got %s, %v; want %s", tc.name, got, err, tc.want)
		}
	}
	if got, err := InferStep(context.Background(), &endless{}, Format{}); err != nil || got != 16*time.Second {
		t.Errorf("of an endless stream: %s, %v; want 16s", got, err)
	}
}

func TestParseMap(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want map[string]string
		err  string
	}{
		{in: "", want: map[string]string{}},
		{
			in:   "resource=pod,time=t_s, gpu_util = gpu util %",
			want: map[string]string{"resource": "pod", "time": "t_s", "gpu_util": "gpu util %"},
		},
		{in: "resource", err: "not of the form"},
		{in: "resource=", err: "not of the form"},
		{in: "resource=a,resource=b", err: "given twice"},
		{in: "pod=resource", err: `no column "pod"; there are`},
	} {
		got, err := ParseMap(tc.in)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("ParseMap(%q): got %v, want an error with %q", tc.in, err, tc.err)
			}
			continue
		}
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
			t.Errorf("ParseMap(%q): %v\n%s", tc.in, err, diff)
		}
	}
}

func TestSignalOf(t *testing.T) {
	for _, tc := range []struct {
		metric string
		want   Signal
		scale  float64
		ok     bool
	}{
		{"DCGM_FI_DEV_GPU_UTIL", GPUUtil, 1, true},
		{"exported_dcgm_fi_dev_gpu_util", GPUUtil, 1, true},
		{"DCGM_FI_PROF_GR_ENGINE_ACTIVE", GREngine, 1, true},
		{"DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", GREngine, 1, true},
		{"DCGM_FI_PROF_SM_ACTIVE", SMActive, 1, true},
		{"DCGM_FI_PROF_SM_UTIL_RATIO", SMActive, 1, true},
		{"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", TensorActive, 1, true},
		{"DCGM_FI_PROF_TENSOR_UTIL_RATIO", TensorActive, 1, true},
		{"DCGM_FI_PROF_DRAM_ACTIVE", DRAMActive, 1, true},
		{"DCGM_FI_PROF_DRAM_UTIL_RATIO", DRAMActive, 1, true},
		{"DCGM_FI_DEV_FB_USED", MemUsed, 1 << 20, true},
		{"nvidia_smi_utilization_gpu", GPUUtil, 1, true},
		{"nvidia_smi_memory_used", MemUsed, 1 << 20, true},
		{"nvidia_smi_power_draw", Power, 1, true},
		{"nvidia_smi_utilization_memory", 0, 0, false},
		{"nvidia_smi_temperature_gpu", Temperature, 1, true},
		{"", 0, 0, false},
	} {
		if got, scale, ok := SignalOf(tc.metric); got != tc.want || scale != tc.scale || ok != tc.ok {
			t.Errorf("SignalOf(%q) = %s, %v, %v; want %s, %v, %v", tc.metric, got, scale, ok, tc.want, tc.scale, tc.ok)
		}
	}
	for s := range numSignals {
		if got, ok := SignalNamed(s.String()); !ok || got != s {
			t.Errorf("SignalNamed(%q) = %s, %v", s, got, ok)
		}
	}
}

// TestCSVRoundTrip writes arbitrary samples as CSV with arbitrary quoting and
// reads them back.
func TestCSVRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z",\n ]{0,6}[a-z]`)
		quoteField := func(s string, always bool) string {
			if !always && !strings.ContainsAny(s, "\",\n") && strings.TrimSpace(s) == s {
				return s
			}
			return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
		}
		var b strings.Builder
		b.WriteString("resource,time,gpu,gpu_util\n")
		var want []string
		for i := range rapid.IntRange(0, 20).Draw(t, "rows") {
			resource := name.Draw(t, "resource")
			sec := int64(i) * 7
			util := math.Round(rapid.Float64Range(0, 100).Draw(t, "util")*1e6) / 1e6
			fmt.Fprintf(&b, "%s,%d,%s,%v\n", quoteField(resource, rapid.Bool().Draw(t, "quoted")), sec,
				quoteField("0", rapid.Bool().Draw(t, "quoted")), util)
			want = append(want,
				fmt.Sprintf("%s 0 %s gpu_util=%v", resource, time.Unix(sec, 0).UTC().Format(time.RFC3339Nano),
					util))
		}
		got, _, err := readAll(strings.NewReader(b.String()), Format{})
		if err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}
