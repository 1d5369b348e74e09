package billfile

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/bill"
)

// TestNewestRunOfAMonthCounts checks that of an export that writes each run into a new folder, the
// newest complete run counts and the others are named.
func TestNewestRunOfAMonthCounts(t *testing.T) {
	days := func(n int) string {
		text := head
		for day := range n {
			text += row("ChargePeriodStart", fmt.Sprintf("2024-09-%02dT00:00:00Z", day+1))
		}
		return text
	}
	manifest := func(at, file string) string {
		return fmt.Sprintf(
			"\ufeff"+
				`{"exportConfig":{"exportName":"daily"},"runInfo":{"submittedTime":%q},"blobs":[{"blobName":"daily/%s"}]}`,
			at, file)
	}
	azure := map[string]string{
		"daily/20240901-20240930/202409020500/a/part_0_0001.csv": days(1),
		"daily/20240901-20240930/202409020500/a/manifest.json": manifest("2024-09-02T05:00:00.1234567Z",
			"part_0_0001.csv"),
		"daily/20240901-20240930/202409040500/c/part_0_0001.csv": days(3),
		"daily/20240901-20240930/202409040500/c/manifest.json":   manifest("2024-09-04T05:00:00Z", "part_0_0001.csv"),
		"daily/20240901-20240930/202409030500/b/part_0_0001.csv": days(2),
		"daily/20240901-20240930/202409030500/b/manifest.json":   manifest("2024-09-03T05:00:00Z", "part_0_0001.csv"),
	}
	legacy := map[string]string{
		"cur/20240901-20241001/as-1/cur-1.csv":         days(2),
		"cur/20240901-20241001/as-2/cur-1.csv":         days(4),
		"cur/20240901-20241001/as-1/cur-Manifest.json": `{"assemblyId":"as-1","reportKeys":["p/cur/20240901-20241001/as-1/cur-1.csv"]}`,
		"cur/20240901-20241001/cur-Manifest.json":      `{"assemblyId":"as-2","reportKeys":["p/cur/20240901-20241001/as-2/cur-1.csv"]}`,
	}
	for _, tc := range []struct {
		name   string
		files  map[string]string
		change func(map[string]string)
		rows   int64
		note   string
		err    string
	}{
		{
			"all runs", azure, nil, 3,
			"2 earlier runs of 20240901-20240930 left aside, which run 202409040500/c replaces: 202409020500/a, " +
				"202409030500/b",
			"",
		},
		{"the newest run has no manifest yet", azure, func(m map[string]string) {
			delete(m, "daily/20240901-20240930/202409040500/c/manifest.json")
		}, 2,
			"run 202409040500/c of 20240901-20240930 left aside: its manifest, which arrives last, is not there", ""},
		{"no run has a manifest", azure, func(m map[string]string) {
			maps.DeleteFunc(m, func(name, _ string) bool { return strings.HasSuffix(name, ".json") })
		}, 3, "2 earlier runs", ""},
		{"a listed file is missing", azure, func(m map[string]string) {
			delete(m, "daily/20240901-20240930/202409040500/c/part_0_0001.csv")
		}, 0, "",
			"c/manifest.json: it lists daily/part_0_0001.csv, which is not there"},
		{"a file is cut short", azure, func(m map[string]string) {
			m["daily/20240901-20240930/202409040500/c/manifest.json"] = `{"blobs":[{"blobName":"x/part_0_0001.csv","byteCount":7}],"runInfo":{"submittedTime":"2024-09-09T00:00:00Z"},"exportConfig":{"exportName":"daily"}}`
		}, 0, "", "and not the 7 that the manifest lists"},
		{"one file a run, in the folder of the month", map[string]string{
			"daily/20240901-20240930/daily_1f.csv": days(2),
			"daily/20240901-20240930/daily_2e.csv": days(3)}, nil, 0, "",
			"daily_2e.csv: it holds "},
		{
			"assemblies of the legacy report", legacy, nil, 4,
			"1 file of earlier assemblies of 20240901-20241001 left aside: its manifest names as-2", "",
		},
		{"an assembly in folders of months", map[string]string{
			"cur/cur/year=2024/month=9/cur-00001.csv": days(3), "cur/cur/year=2024/month=9/cur-00002.csv": days(9),
			"cur/20240901-20241001/cur-Manifest.json": `{"assemblyId":"as-3","reportKeys":["p/cur/cur/year=2024/month=9/cur-00001.csv"]}`,
		}, nil, 3, "1 file of earlier assemblies of 20240901-20241001 left aside: its manifest names as-3", ""},
		{"an assembly that is not delivered", legacy, func(m map[string]string) {
			delete(m, "cur/20240901-20241001/as-2/cur-1.csv")
		}, 0, "",
			"it lists p/cur/20240901-20241001/as-2/cur-1.csv, which is not there"},
		{
			"a daily file and its month again", map[string]string{
				"d1.csv": days(1), "month.csv": days(30),
			}, nil, 0, "",
			"month.csv: it holds 1 row of ",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			all := maps.Clone(tc.files)
			if tc.change != nil {
				tc.change(all)
			}
			b, err := tryRead(put(t, all), Options{})
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("got %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if b.Lines != tc.rows || !strings.Contains(strings.Join(b.Notes, "\n"), tc.note) {
				t.Errorf("%d rows with notes %q, want %d and %q", b.Lines, b.Notes, tc.rows, tc.note)
			}
		})
	}
	dir := put(t, azure)
	b := read(t, filepath.Join(dir, "daily/20240901-20240930/202409030500"), Options{})
	if d := bill.Summarize(b, nil); d.Rows != 2 {
		t.Errorf("a run that is named itself has %d rows, want 2", d.Rows)
	}
}

// TestFewEqualRowsOfTwoFilesAreNamed checks that a bill may hold equal rows; they count and are
// named.
func TestFewEqualRowsOfTwoFilesAreNamed(t *testing.T) {
	one, other := head+row(), head+row()
	for i := range 8 {
		one += row("ResourceId", fmt.Sprintf("i-a%d", i))
		other += row("ResourceId", fmt.Sprintf("i-b%d", i))
	}
	b := read(t, put(t, map[string]string{"a.csv": one, "b.csv": other}), Options{})
	if notes := strings.Join(b.Notes, "\n"); b.Lines != 18 ||
		!strings.Contains(notes, "both hold 1 equal row: they count twice") {
		t.Errorf("%d rows, notes %q", b.Lines, notes)
	}
}
