package usage

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
)

// endlessText repeats a text forever.
type endlessText struct {
	text string
	at   int
}

func (e *endlessText) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		c := copy(p[n:], e.text[e.at:])
		n, e.at = n+c, (e.at+c)%len(e.text)
	}
	return n, nil
}

// numberedRows writes rows that differ.
type numberedRows struct {
	before, after string
	i             int
	rest          []byte
}

func (r *numberedRows) Read(p []byte) (int, error) {
	for len(r.rest) < len(p) {
		r.rest = append(strconv.AppendInt(append(r.rest, r.before...), int64(r.i), 10), r.after...)
		r.i++
	}
	n := copy(p, r.rest)
	r.rest = r.rest[:copy(r.rest, r.rest[n:])]
	return n, nil
}

// TestRejectsOversizedFiles checks that a file beyond the limits is refused with its name, line and
// limit before memory is allocated.
func TestRejectsOversizedFiles(t *testing.T) {
	const header = "resource,time,gpu,gpu_util,tags\n"
	after := func(header string, r io.Reader) io.Reader { return io.MultiReader(strings.NewReader(header), r) }
	for _, tc := range []struct {
		name string
		in   io.Reader
		want string
	}{
		{"zeros without end", &endlessText{text: "\x00"}, "u.csv:1: the line is over 262144 bytes long"},
		{"a line without end", after(header, &endlessText{text: "a"}), "u.csv:2: the line is over 262144 bytes long"},
		{"a quote without end", after(header, &endlessText{text: "\"a\n"}), "u.csv:2: "},
		{
			"columns", strings.NewReader("resource,time" + strings.Repeat(",c", 5000) + "\n"),
			"u.csv:1: it has 5002 columns: at most 4096 are read",
		},
		{
			"a long name", strings.NewReader(header + strings.Repeat("n", 3000) + ",0,0,1,\n"),
			"is over 2048 bytes long",
		},
		{"a long GPU", strings.NewReader(header + "n,0," + strings.Repeat("g", 3000) + ",1,\n"), "u.csv:2:3: "},
		{
			"a long description", strings.NewReader(header + "n,0,0,1,a=" + strings.Repeat("x", 1<<17) + "\n"),
			"u.csv:2: what describes the resource is over 64 KiB",
		},
		{
			"GPUs without end", after(header, &numberedRows{before: "n,0,g", after: ",1,\n"}),
			"u.csv:1048576:3: it holds more than 1048576 different",
		},
		{
			"descriptions without end",
			after(header, &numberedRows{before: "n,0,0,1,a=", after: strings.Repeat("x", 5000) + "\n"}),
			"are over 256 MiB of text",
		},
		{"a bomb of gzip", bytes.NewReader(bomb(t, header, 160<<20)), "it unpacks to over 200 times its length"},
		{"a long line in gzip", bytes.NewReader(bomb(t, header+"a", 1<<20)), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Read(context.Background(), tc.in, Format{Name: "u.csv"}, func(*Sample) error { return nil })
			runtime.ReadMemStats(&after)
			var e *FileError
			if tc.want != "" && (!errors.As(err, &e) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("Read: %v, want %q", err, tc.want)
			}
			// The peak is a million names in maps that double.
			if cost := after.TotalAlloc - before.TotalAlloc; cost > 1<<30 {
				t.Errorf("%d MiB were allocated", cost>>20)
			}
		})
	}
}

// bomb compresses a header and n bytes of empty lines.
func bomb(t testing.TB, header string, n int64) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, header); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(w, &endlessText{text: strings.Repeat(" ", 1<<12) + "\n"}, n); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestRejectsParquetBomb checks pages of strings that each repeat the previous one: few bytes
// unpack to many, which only unpacking reveals.
func TestRejectsParquetBomb(t *testing.T) {
	type row struct {
		Resource string  `parquet:"resource"`
		Time     float64 `parquet:"time"`
	}
	for _, tc := range []struct {
		length, rows int
		refused      bool
	}{{100, 1000, false}, {200, 20_000, true}} {
		var b bytes.Buffer
		w := parquet.NewGenericWriter[row](&b, parquet.PageBufferSize(1<<26), parquet.NewSchema("u", parquet.Group{
			"resource": parquet.Compressed(parquet.Encoded(parquet.String(), &parquet.DeltaByteArray), &parquet.Zstd),
			"time":     parquet.Compressed(parquet.Leaf(parquet.DoubleType), &parquet.Zstd),
		}))
		rows := make([]row, 1000)
		for i := range rows {
			rows[i].Resource = fmt.Sprint(i*7919%1000) + strings.Repeat("r", tc.length)
		}
		for left := tc.rows; left > 0; left -= len(rows) {
			if _, err := w.Write(rows[:min(left, len(rows))]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Read(context.Background(), bytes.NewReader(b.Bytes()),
			Format{Name: "u.parquet"}, func(*Sample) error {
				return nil
			})
		runtime.ReadMemStats(&after)
		if tc.refused != (err != nil) || err != nil &&
			!strings.Contains(err.Error(), "u.parquet:1:1: resource has pages that") {
			t.Errorf("%d rows in %d bytes: Read: %v", tc.rows, b.Len(), err)
		}
		if cost := after.TotalAlloc - before.TotalAlloc; cost > 64<<20 {
			t.Errorf("%d rows in %d bytes: %d MiB were allocated", tc.rows, b.Len(), cost>>20)
		}
	}
}
