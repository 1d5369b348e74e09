package aws

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/inventory"
)

const analysisHeader = "Date,ConfigId,Filter,StorageClass,ObjectAge,ObjectCount,DataUploaded_MB,Storage_MB,DataRetrieved_MB,GetRequestCount,CumulativeAccessRatio,ObjectAgeForSIATransition,RecommendedObjectAgeForSIATransition\n"

// analysisRows are two days of one configuration, and one of another, sorted by date within age
// group, with all ages last.
const analysisRows = `11-19-2026,all,,STANDARD,000-014,10,5,100,20,3,0.2,,
11-20-2026,all,,STANDARD,000-014,11,5,200,20,3,0.2,,
11-20-2026,all,,STANDARD,030-044,7,0,300,1,1,0.1,,
11-19-2026,all,,STANDARD,090-119,5,0,1000,64,9,0.1,,
11-20-2026,all,,STANDARD,090-119,5,0,1024,32,9,0.1,,
10-01-2026,all,,STANDARD,090-119,5,0,1024,9999,9,0.1,,
11-20-2026,all,,STANDARD,730+,2,0,2048,0,0,0,,
11-20-2026,other,x/,STANDARD,730+,2,0,9999,0,0,0,,
11-20-2026,all,,STANDARD_IA,730+,2,0,512.5,0,0,0,,
11-20-2026,all,,STANDARD,ALL,30,5,3600,53,13,0.1,45,60
11-20-2026,all,,STANDARD_IA,ALL,2,0,512.5,0,0,,,
`

func mib(n float64) int64 { return int64(n * (1 << 20)) }

// TestParsesStorageClassAnalysis checks that the newest day is used, that 30 days of reads are
// summed, that objects without age group are small, and that a header is optional and may have
// another order.
func TestParsesStorageClassAnalysis(t *testing.T) {
	want := &analysis{day: time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC),
		total: inventory.Stored{
			Bytes: mib(4112.5), Objects: 32,
		}, standard: inventory.Stored{Bytes: mib(3600), Objects: 30},
		small: inventory.Stored{Bytes: mib(28), Objects: 5},
		older: map[int]inventory.Stored{
			30: {Bytes: mib(3372), Objects: 14}, 90: {Bytes: mib(3072), Objects: 7},
			180: {Bytes: mib(2048), Objects: 2},
		},
		read:  map[int]int64{30: mib(97), 90: mib(96), 180: 0},
		since: time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC), lastRead: time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)}
	swapped := "\ufeffConfigId,Date" + strings.TrimPrefix(analysisHeader, "Date,ConfigId")
	for line := range strings.Lines(analysisRows) {
		f := strings.SplitN(line, ",", 3)
		swapped += f[1] + "," + f[0] + "," + f[2]
	}
	for name, text := range map[string]string{
		"no header": analysisRows, "a header": analysisHeader + analysisRows, "another order": swapped,
	} {
		got, err := readAnalysis(strings.NewReader(text), "all")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(analysis{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for name, text := range map[string]string{
		"nothing":           "",
		"another id":        strings.ReplaceAll(analysisRows, ",all,", ",some,"),
		"no age groups":     "11-20-2026,all,,STANDARD,ALL,30,5,3600,53,13,0.1,45,60\n",
		"no sum":            "11-20-2026,all,,STANDARD,730+,2,0,2048,0,0,0,,\n",
		"a negative amount": "11-20-2026,all,,STANDARD,730+,2,0,-1,0,0,0,,\n",
		"no number":         "11-20-2026,all,,STANDARD,730+,2,0,NaN,0,0,0,,\n",
		"no date":           "2026-11-20,all,,STANDARD,730+,2,0,1,0,0,0,,\n",
		"no age":            "11-20-2026,all,,STANDARD,old,2,0,1,0,0,0,,\n",
	} {
		if got, err := readAnalysis(strings.NewReader(text), "all"); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// FuzzAnalysis checks that reading terminates with a consistent result: nothing is negative, and
// older objects are part of younger ages.
func FuzzAnalysis(f *testing.F) {
	f.Add(analysisHeader + analysisRows)
	f.Add(analysisRows)
	f.Add("11-20-2026,all,,STANDARD,000-014,1,,9e12,9e12\n11-20-2026,all,,STANDARD,ALL,1,,9e12,9e12\n")
	f.Add("\"")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := readAnalysis(strings.NewReader(text), "all")
		if err != nil {
			return
		}
		before, read := int64(math.MaxInt64), int64(math.MaxInt64)
		for _, age := range ages {
			if o := a.older[age]; o.Bytes < 0 || o.Objects < 0 || o.Bytes > before ||
				a.read[age] < 0 || a.read[age] > read {
				t.Fatalf("%+v", a)
			}
			before, read = a.older[age].Bytes, a.read[age]
		}
		if a.small.Bytes < 0 || a.small.Objects < 0 || a.standard.Bytes < 0 || a.total.Bytes < a.standard.Bytes ||
			a.day.IsZero() {
			t.Fatalf("%+v", a)
		}
	})
}
