package billfile

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/billfile/billtest"
)

const head = "BilledCost,EffectiveCost,ListCost,ContractedCost,BillingAccountId,BillingCurrency,BillingPeriodStart,BillingPeriodEnd,ChargePeriodStart,ChargeCategory,ResourceId,ServiceName,Tags\n"

// row returns a row of head with some fields set otherwise.
func row(set ...string) string {
	names := strings.Split(strings.TrimSpace(head), ",")
	fields := []string{
		"1.5", "1.25", "2", "NULL", "acc", "USD", "2024-09-01 00:00:00",
		"2024-10-01T00:00:00Z", "2024-09-03T04:00:00Z",
		"Usage", "i-1", "EC2", "",
	}
	for i := 0; i < len(set); i += 2 {
		fields[slices.Index(names, set[i])] = set[i+1]
	}
	return strings.Join(fields, ",") + "\n"
}

// put writes files under a new folder and returns it.
func put(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func gzipped(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(s))
	_ = z.Close()
	return b.String()
}

func TestBadInputIsOneClearLine(t *testing.T) {
	good := head + row() + row()
	for _, tc := range []struct {
		name, file, text string
		want             []string
	}{
		{"empty", "b.csv", "", []string{"b.csv: it is empty"}},
		{
			"another schema", "b.csv", "time,gpu_util\n1,2\n",
			[]string{"b.csv:1: it is no bill", "this file has 2 columns", "BilledCost"},
		},
		{
			"legacy report", "b.csv", "lineItem/UnblendedCost,bill/PayerAccountId\n1,2\n",
			[]string{"legacy Cost and Usage Report"},
		},
		{
			"needed columns", "b.csv", "BilledCost,ChargePeriodStart\n1,2024-09-01\n",
			[]string{"b.csv:1: it looks like FOCUS 1.0, and lacks BillingPeriodStart"},
		},
		{
			"duplicated column", "b.csv", "BilledCost,x,billedcost\n",
			[]string{`b.csv:1:14: columns 1 and 3 have the same name`},
		},
		{"no cost", "b.csv", good + row("BilledCost", "NULL"), []string{"b.csv:4:1: BilledCost is empty", "not zero"}},
		{
			"no number", "b.csv", good + row("EffectiveCost", "$1"),
			[]string{`b.csv:4:5: EffectiveCost "$1" is not a decimal number`},
		},
		{
			"no cost that money can hold", "b.csv", good + row("BilledCost", "1e29"),
			[]string{"b.csv:4: BilledCost is 1000", "more than a bill can come to"},
		},
		{
			"another currency", "b.csv", good + row("BillingCurrency", "EUR"),
			[]string{`b.csv:4: BillingCurrency is "EUR"`},
		},
		{
			"long record", "b.csv", good + strings.Repeat("1", 2<<20),
			[]string{"b.csv: row 3: a record is over 1048576 bytes long"},
		},
		{
			"long header", "b.csv", strings.Repeat("BilledCost", 1<<18),
			[]string{"b.csv: a record is over 1048576 bytes long"},
		},
		{
			"no time", "b.csv", good + row("ChargePeriodStart", "yesterday"),
			[]string{`b.csv:4:`, `ChargePeriodStart "yesterday" is not a time`},
		},
		{
			"no start", "b.csv", good + row("BillingPeriodStart", "null"),
			[]string{"b.csv:4: BillingPeriodStart is empty"},
		},
		{"short row", "b.csv", good + "1,2\n", []string{"b.csv:4: this row has another number of fields"}},
		{"open quote", "b.csv", good + "\"1,2\n", []string{"b.csv:4:", "not valid CSV"}},
		{
			"cut gzip", "b.csv.gz", gzipped(good + strings.Repeat(row(), 500))[:200],
			[]string{"b.csv.gz: the file is cut short"},
		},
		{"damaged gzip", "b.csv.gz", "\x1f\x8bnonsense", []string{"b.csv.gz: the file is not valid gzip"}},
		{
			"cut Parquet", "b.parquet", "PAR1 and nothing more",
			[]string{"b.parquet: the file is not valid Parquet", "cut short"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := put(t, map[string]string{tc.file: tc.text})
			b, err := tryRead(filepath.Join(dir, tc.file), Options{})
			if err == nil || b != nil {
				t.Fatalf("it is read: %+v", b)
			}
			for _, want := range tc.want {
				if got := err.Error(); !strings.Contains(got, want) || strings.Contains(got, "\n") {
					t.Errorf("the error is %q, want one line with %q", got, want)
				}
			}
		})
	}
}

// TestBombsAreBounded checks that a small file of gzip takes little memory, however long its lines
// and however much it unpacks to.
func TestBombsAreBounded(t *testing.T) {
	zeros := strings.Repeat("0", 1<<20)
	for _, tc := range []struct {
		name string
		line func(i int) string
		want string
	}{
		{"one line", func(int) string { return zeros }, "a record is over 1048576 bytes long"},
		{"one quoted field", func(i int) string {
			if i == 0 {
				return `"` + zeros
			}
			return zeros + "\n"
		}, "a record is over 1048576 bytes long"},
		{"long names", func(i int) string {
			return row("ResourceId", fmt.Sprint(i, zeros[:1<<19]))
		}, "it unpacks to over 200 times its length"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			_, _ = io.WriteString(z, head)
			for i := range 1 << 10 {
				_, _ = io.WriteString(z, tc.line(i))
			}
			_ = z.Close()
			dir := put(t, map[string]string{"b.csv.gz": b.String()})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := tryRead(filepath.Join(dir, "b.csv.gz"), Options{})
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%d KiB of gzip give %v, want %q", b.Len()>>10, err, tc.want)
			}
			if cost := (after.TotalAlloc - before.TotalAlloc) >> 20; cost > 512 {
				t.Errorf("%d KiB of gzip took %d MiB", b.Len()>>10, cost)
			}
		})
	}
}

// TestLinksStayInTheFolder checks that a link out of a folder, to a file or a folder, is not
// followed and its target not quoted, and that one within the folder is.
func TestLinksStayInTheFolder(t *testing.T) {
	secret := put(t, map[string]string{
		"key.csv": "hunter2,other\n1,2\n", "dir/more.csv": head + row("ResourceId", "i-secret"),
	})
	dir := put(t, map[string]string{"b.csv": head + row(), "more/c.txt": head + row("ResourceId", "i-2")})
	for link, to := range map[string]string{
		"key.csv": filepath.Join(secret, "key.csv"), "dir.csv": filepath.Join(secret, "dir"), "gone.csv": "nowhere",
		"within.csv": "more/c.txt",
	} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	b, err := tryRead(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if b.Lines != 2 {
		t.Errorf("%d lines were read, want the one of the folder and the one of the link within", b.Lines)
	}
	notes := strings.Join(b.Notes, "\n")
	for _, want := range []string{"key.csv left aside", "dir.csv left aside", "gone.csv left aside"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes are %q, want %q", notes, want)
		}
	}
	if _, err := tryRead(filepath.Join(secret, "key.csv"), Options{}); err == nil ||
		strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a file that is no bill gives %v, which must not quote it", err)
	}
}

func TestTruncatedParquet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.parquet")
	if _, err := billtest.Write(path, 2000); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, keep := range []int{5, 100, len(text) / 2, len(text) - 1} {
		if err := os.WriteFile(path, text[:keep], 0o600); err != nil {
			t.Fatal(err)
		}
		if b, err := tryRead(path, Options{}); b != nil || err == nil ||
			!strings.Contains(err.Error(), "b.parquet: ") ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%d of %d bytes: %v, %v", keep, len(text), b, err)
		}
	}
}

// TestParquetTypes reads costs and times as different writers store them.
func TestParquetTypes(t *testing.T) {
	type tagged struct {
		Billed int64             `parquet:"BilledCost,decimal(9:18)"`
		List   string            `parquet:"ListCost,optional"`
		Start  time.Time         `parquet:"BillingPeriodStart,timestamp(millisecond)"`
		Charge int32             `parquet:"ChargePeriodStart,date"`
		Tags   map[string]string `parquet:"Tags,optional"`
		Kind   string            `parquet:"ChargeCategory"`
	}
	path := filepath.Join(t.TempDir(), "b.parquet")
	start := time.Date(2024, 9, 1, 0, 0, 0, 0, time.UTC)
	day := int32(start.Unix()/86400) + 4
	if err := parquet.WriteFile(path, []tagged{
		{
			-1_500_000_001, "2.000000000000000000000000001", start, day,
			map[string]string{"Team": "a \"b\"", "x": "ü"},
			"Usage",
		},
		{1_000_000_000, "", start, day, nil, "Usage"},
		{1, "1e-30", start, day, map[string]string{"user:team": "speech"}, "Usage"},
	}); err != nil {
		t.Fatal(err)
	}
	b := read(t, path, Options{})
	if d := bill.Summarize(b, nil); d.BilledCost != "-0.50" ||
		*d.ListCost != "2.000000000000000000000000001000001000000000000000000000"[:29]+"001" {
		t.Errorf("billed %s, list %s", d.BilledCost, *d.ListCost)
	}
	teams := map[string]string{}
	for r := range b.Rows() {
		teams[r.Owner.Team] = r.Cost.Billed.String() + " " + r.Day.Format(time.DateOnly)
	}
	want := map[string]string{
		`a "b"`: "-1.500000001 2024-09-05", "": "1.00 2024-09-05", "speech": "0.000000001 2024-09-05",
	}
	for team, cost := range want {
		if teams[team] != cost {
			t.Errorf("team %q has %q, want %q (of %v)", team, teams[team], cost, teams)
		}
	}
}

// export is an AWS data export under a prefix, with two periods.
func export() map[string]string {
	aug := row("BillingPeriodStart", "2024-08-01", "BillingPeriodEnd", "2024-09-01", "ChargePeriodStart", "2024-08-09")
	return map[string]string{
		"p/x/data/BILLING_PERIOD=2024-08/x-00001.csv.gz":      gzipped(head + aug),
		"p/x/data/BILLING_PERIOD=2024-09/x-00001.csv.gz":      gzipped(head + row()),
		"p/x/data/BILLING_PERIOD=2024-09/x-00002.csv.gz":      gzipped(head + row("ResourceId", "i-2")),
		"p/x/data/BILLING_PERIOD=2024-09/x-00003.csv.gz":      "",
		"p/x/metadata/BILLING_PERIOD=2024-08/x-Manifest.json": `{"dataFiles":["s3://b/p/x/data/BILLING_PERIOD=2024-08/x-00001.csv.gz"]}`,
		"p/x/metadata/BILLING_PERIOD=2024-09/x-Manifest.json": `{"dataFiles":["s3://b/p/x/data/BILLING_PERIOD=2024-09/x-00001.csv.gz","s3://b/p/x/data/BILLING_PERIOD=2024-09/x-00002.csv.gz"]}`,
	}
}

// memory is a bucket in memory.
type memory map[string]string

func (m memory) List(_ context.Context, prefix string, each func(string, int64) error) error {
	for _, k := range slices.Sorted(func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}) {
		if strings.HasPrefix(k, prefix) {
			if err := each(k, int64(len(m[k]))); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m memory) Open(_ context.Context, key string) (io.ReadCloser, error) {
	text, ok := m[key]
	if !ok {
		return nil, errors.New("no such key")
	}
	return io.NopCloser(strings.NewReader(text)), nil
}

func TestDataExport(t *testing.T) {
	for _, tc := range []struct {
		name    string
		change  func(map[string]string)
		periods int
		billed  string
		note    string
		err     string
	}{
		{"two periods, one blanked chunk", func(map[string]string) {}, 2, "4.50", "", ""},
		{"a period without a manifest", func(m map[string]string) {
			delete(m, "p/x/metadata/BILLING_PERIOD=2024-09/x-Manifest.json")
		}, 1, "1.50", "2024-09 is left aside", ""},
		{"a file that is not there yet", func(m map[string]string) {
			delete(m, "p/x/data/BILLING_PERIOD=2024-09/x-00002.csv.gz")
		}, 0, "", "", "lists s3://b/p/x/data/BILLING_PERIOD=2024-09/x-00002.csv.gz, which is not there"},
		{"a file of before", func(m map[string]string) {
			m["p/x/data/BILLING_PERIOD=2024-09/x-00009.csv.gz"] = gzipped(head + row())
		}, 2, "4.50", "does not list", ""},
		{"manifests that name no files", func(m map[string]string) {
			for _, k := range []string{"2024-08", "2024-09"} {
				m["p/x/metadata/BILLING_PERIOD="+k+"/x-Manifest.json"] = `{"exportArn":"a"}`
			}
		}, 2, "4.50", "", ""},
		{"another period's row", func(m map[string]string) {
			m["p/x/data/BILLING_PERIOD=2024-09/x-00002.csv.gz"] = gzipped(
				head + row("BillingPeriodStart", "2024-08-01",
					"BillingPeriodEnd", "2024-09-01", "ChargePeriodStart", "2024-08-02"))
		}, 0, "", "",
			"x-00002.csv.gz:2: its billing period starts on 2024-08-01, and the file is in the partition of 2024-09"},
		{"a damaged manifest", func(m map[string]string) {
			m["p/x/metadata/BILLING_PERIOD=2024-08/x-Manifest.json"] = "{"
		}, 0, "", "", "the manifest is not valid JSON"},
		{"every execution in a folder of its own", func(m map[string]string) {
			for _, run := range []string{"2024-09-05T01:00:00.000Z-aa", "2024-09-06T01:00:00.000Z-bb"} {
				m["p/x/data/BILLING_PERIOD=2024-07/"+run+"/x-00001.csv.gz"] = gzipped(head + row("BillingPeriodStart",
					"2024-07-01", "BillingPeriodEnd", "2024-08-01", "ChargePeriodStart", "2024-07-02"))
				m["p/x/metadata/BILLING_PERIOD=2024-07/"+run+"/x-Manifest.json"] = `{}`
			}
		}, 3, "6.00", "does not list", ""},
		{"a period that became empty", func(m map[string]string) {
			m["p/x/data/BILLING_PERIOD=2024-09/x-00001.csv.gz"] = gzipped("")
			m["p/x/data/BILLING_PERIOD=2024-09/x-00002.csv.gz"] = gzipped(head)
		}, 1, "1.50", "", ""},
		{"another export in the same folder", func(m map[string]string) {
			m["p/x-2/b.csv"] = head + row()
		}, 2, "4.50", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			files := export()
			tc.change(files)
			dir := put(t, files)
			for from, path := range map[string]string{
				"folder": filepath.Join(dir, "p", "x"), "bucket": "s3://b/p/x/",
			} {
				b, err := tryRead(path, Options{Bucket: func(_ context.Context, name string) (Bucket, error) {
					if name != "b" {
						t.Errorf("bucket %s is asked for", name)
					}
					return memory(files), nil
				}})
				if tc.err != "" {
					if err == nil || !strings.Contains(err.Error(), tc.err) {
						t.Errorf("%s: the error is %v, want one with %q", from, err, tc.err)
					}
					continue
				}
				if err != nil {
					t.Fatalf("%s: %v", from, err)
				}
				if d := bill.Summarize(b, nil); len(d.Periods) != tc.periods || d.BilledCost != tc.billed ||
					!strings.Contains(strings.Join(d.Notes, "\n"), tc.note) {
					t.Errorf("%s: %d periods, billed %s, notes %q; want %d, %s and %q", from,
						len(d.Periods), d.BilledCost, d.Notes,
						tc.periods, tc.billed, tc.note)
				}
			}
		})
	}
}

// TestShrunkenExport: periods that an export no longer has are removed, and those that it never
// covered stay.
func TestShrunkenExport(t *testing.T) {
	files := export()
	options := Options{Bucket: func(context.Context, string) (Bucket, error) { return memory(files), nil }}
	first := read(t, "s3://b/p/x", options)
	var stored []bill.Period
	replace, _, _ := bill.Plan(first, nil, time.Unix(0, 0))
	for _, r := range replace {
		stored = append(stored, r.Period)
	}
	stored = append(stored, bill.Period{
		PeriodKey: bill.PeriodKey{Account: "acc", Start: time.Date(2024, 7, 1, 0, 0, 0, 0, time.UTC)},
		Source:    "s3://b/p/x", Digest: "7",
	},
		bill.Period{
			PeriodKey: bill.PeriodKey{Account: "other", Start: time.Date(2024, 9, 1, 0, 0, 0, 0, time.UTC)},
			Source:    "elsewhere", Digest: "9",
		})
	files["p/x/data/BILLING_PERIOD=2024-09/x-00001.csv.gz"] = ""
	files["p/x/data/BILLING_PERIOD=2024-09/x-00002.csv.gz"] = gzipped(head)
	replace, planned, _ := bill.Plan(read(t, "s3://b/p/x/", options), stored, time.Unix(1, 0))
	if len(replace) != 1 || replace[0].Content != nil || replace[0].Start.Month() != time.September ||
		replace[0].Account != "acc" || replace[0].Replaces == "" {
		t.Errorf("it replaces %+v", replace)
	}
	if len(planned) != 2 || planned[0].Change != bill.Unchanged || planned[1].Change != bill.Removed {
		t.Errorf("what becomes of the periods is %+v", planned)
	}
}

func TestFolder(t *testing.T) {
	dir := put(t, map[string]string{
		"a.csv": head + row(), "sub/b.csv.gz": gzipped(head + row("ResourceId", "i-2")),
		"c.CSV":      gzipped(head + row("ResourceId", "i-3")),
		"readme.txt": "no bill", ".hidden.csv": "no bill"})
	b := read(t, dir, Options{})
	if d := bill.Summarize(b, nil); d.Rows != 3 || d.BilledCost != "4.50" || d.ContractedCost != nil {
		t.Errorf("the folder holds %+v", d)
	}
	var mistake *Error
	if b, err := tryRead(put(t, map[string]string{"a.txt": "x"}), Options{}); !errors.As(err, &mistake) ||
		!strings.Contains(err.Error(), "there is no bill") {
		t.Errorf("a folder without a bill: %v, %v", b, err)
	}
	if b, err := tryRead(put(t, map[string]string{"a.csv": head + row(), "b.csv": curHead + "\n"}),
		Options{}); err == nil || !strings.Contains(err.Error(), "one kind of bill at a time") {
		t.Errorf("two kinds of bill: %v, %v", b, err)
	}
}

// TestColumnsAreNamed: missing and renamed columns are named.
func TestColumnsAreNamed(t *testing.T) {
	text := "billedcost,BillingPeriodStart,ChargePeriodStart,ServiceProviderName,HostProviderName\n1,2024-09-01,2024-09-01,AWS,AWS\n"
	b := read(t, filepath.Join(put(t, map[string]string{"b.csv": text}), "b.csv"), Options{})
	if b.Schema != "FOCUS 1.3" || !slices.Contains(b.Missing, "EffectiveCost") ||
		slices.Contains(b.Missing, "BilledCost") || slices.Contains(b.Missing, "ServiceProviderName") {
		t.Errorf("%s lacks %v", b.Schema, b.Missing)
	}
	notes := strings.Join(b.Notes, "\n")
	for _, want := range []string{
		"column BilledCost is written billedcost", "1 row without BillingCurrency", "EffectiveCost is empty in 1 row",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes %q lack %q", notes, want)
		}
	}
	for r := range b.Rows() {
		if r.Provider != "AWS" || !r.Unknown.Has(bill.EffectiveCost|bill.ListCost) {
			t.Errorf("the row is %+v", r)
		}
	}
}

func TestReadingStopsWhenToldTo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.parquet")
	if _, err := billtest.Write(path, 100_000); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	e, err := Open(ctx, path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if b, err := e.Read(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("it is read: %v, %v", b, err)
	}
}

func TestRowsAreBounded(t *testing.T) {
	dir := put(t, map[string]string{"b.csv": head + row() + row("ResourceId", "i-2") + row("ResourceId", "i-3")})
	if _, err := tryRead(dir, Options{MaxRows: 2}); !errors.Is(err, bill.ErrTooManyRows) {
		t.Errorf("three rows where two fit: %v", err)
	}
	// The same rows in several files are no more rows, however many files are read at a time.
	same := func(hour string) string {
		at := "2024-09-03T" + hour + ":00:00Z"
		return head + row("ChargePeriodStart", at) + row("ChargePeriodStart", at, "ResourceId", "i-2") +
			row("ChargePeriodStart", at, "ResourceId", "i-3")
	}
	dir = put(t, map[string]string{"a.csv": same("01"), "b.csv": same("02"), "c.csv": same("03"), "d.csv": same("04")})
	if b, err := tryRead(dir, Options{MaxRows: 3, Workers: 4}); err != nil || b.Lines != 12 {
		t.Errorf("three rows where three fit: %v", err)
	}
	if _, err := tryRead(dir, Options{MaxRows: 2, Workers: 4}); !errors.Is(err, bill.ErrTooManyRows) {
		t.Errorf("three rows in each of four files where two fit: %v", err)
	}
}

// TestFilesThatHoldTheSameAreRefused checks that a copy in a folder, whatever its name, order or
// compression, would count twice.
func TestFilesThatHoldTheSameAreRefused(t *testing.T) {
	text := head + row() + row("ResourceId", "i-2")
	parquetFile := string(parquetOf(t))
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  []string // none: it is read
	}{
		{
			"gzipped", map[string]string{"ok.csv": text, "ok.csv.gz": gzipped(text)},
			[]string{"ok.csv.gz: it holds the same as ", "ok.csv, and its costs would count twice"},
		},
		{
			"a copy", map[string]string{"ok.csv": text, "copy.csv": text},
			[]string{"ok.csv: it holds the same as ", "copy.csv"},
		},
		{
			"a copy below", map[string]string{
				"ok.csv": text, "z/ok.csv": text, "other.csv": head + row("ResourceId", "i-3"),
			},
			[]string{"z/ok.csv: it holds the same as "},
		},
		{
			"Parquet", map[string]string{"ok.parquet": parquetFile, "copy.parquet": parquetFile},
			[]string{"ok.parquet: it holds the same as ", "copy.parquet"},
		},
		{
			"Parquet of one size",
			map[string]string{"ok.parquet": parquetFile, "same-size.csv": sized(text, len(parquetFile))}, nil,
		},
		{"another row", map[string]string{"ok.csv": text, "copy.csv": text + row("ResourceId", "i-3")},
			[]string{
				"ok.csv: it holds 2 rows of ",
				"copy.csv again (the same provider, account, period, resource and day), which would count twice",
			}},
		{
			"restated", map[string]string{
				"v1.csv": text, "v2.csv": head + row("BilledCost", "1") + row("ResourceId", "i-2"),
			},
			[]string{"v2.csv: it holds 2 rows of ", "1 row of them with other costs"},
		},
		{
			"other days",
			map[string]string{"ok.csv": text, "next.csv": strings.ReplaceAll(text, "2024-09-03T", "2024-09-04T")}, nil,
		},
		{"nothing but the header", map[string]string{"ok.csv": text, "a.csv": head, "b.csv": head}, nil},
	} {
		for _, workers := range []int{1, 4} {
			_, err := tryRead(put(t, tc.files), Options{Workers: workers})
			if tc.want == nil && err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
			for _, want := range tc.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: got %v, want %q", tc.name, err, want)
				}
			}
		}
	}
}

// TestPeriodsThatOverlapAreRefused checks that one file with a month twice, with two UTC offsets.
func TestPeriodsThatOverlapAreRefused(t *testing.T) {
	dir := put(t, map[string]string{
		"b.csv": head + row() + row("BillingPeriodStart", "2024-08-31T22:00:00Z", "BillingPeriodEnd",
			"2024-09-30T22:00:00Z"),
	})
	_, err := tryRead(filepath.Join(dir, "b.csv"), Options{})
	var twice *bill.CountedTwice
	if !errors.As(err, &twice) ||
		!strings.Contains(err.Error(),
			"the billing period 2024-09-01T00:00:00Z to 2024-10-01T00:00:00Z of account acc "+
				"overlaps 2024-08-31T22:00:00Z to 2024-09-30T22:00:00Z") {
		t.Errorf("got %v", err)
	}
}

// parquetOf is a small bill in Parquet.
func parquetOf(t *testing.T) []byte {
	type line struct {
		Billed string    `parquet:"BilledCost"`
		Start  time.Time `parquet:"BillingPeriodStart,timestamp(millisecond)"`
		Charge time.Time `parquet:"ChargePeriodStart,timestamp(millisecond)"`
		Kind   string    `parquet:"ChargeCategory"`
	}
	start := time.Date(2024, 9, 1, 0, 0, 0, 0, time.UTC)
	path := filepath.Join(t.TempDir(), "b.parquet")
	if err := parquet.WriteFile(path, []line{{"1.5", start, start, "Usage"}}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// sized is a bill with a row more, of as many bytes.
func sized(text string, n int) string {
	more := row("ServiceName", "")
	return text + row("ServiceName", strings.Repeat("x", n-len(text)-len(more)))
}
