package mig

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestReadWorkloads(t *testing.T) {
	got, err := ReadWorkloads("w.csv",
		strings.NewReader(
			"\xef\xbb\xbfname,memory_gib,compute_slices,count\r\ntrain,  9.62 ,3,2\r\n\"a, b\",1e1,1,0\n"))
	want := []Workload{{"train", 9.62, 3, 2}, {"a, b", 10, 1, 0}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	const header = "name,memory_gib,compute_slices,count\n"
	for _, tc := range []struct{ name, text, want string }{
		{"empty", " \n", "w.csv: the file is empty"},
		{"missing column", "name,memory_gib,count\n", `w.csv:1: column "compute_slices" is missing`},
		{"unknown column", "name,memory_gib,compute_slices,count,gpu\n", `w.csv:1:38: unknown column "gpu"`},
		{"column twice", "name,name,compute_slices,count\n", `w.csv:1:6: column "name" appears twice`},
		{"short row", header + "a,1,1\n", "w.csv:2:1: wrong number of fields"},
		{"no number", header + "a,ten,1,1\n", `w.csv:2:3: memory_gib "ten" is not a number`},
		{"no memory", header + "a,0,1,1\n", "w.csv:2:3: memory_gib is 0: expected over 0"},
		{"not a number", header + "a,NaN,1,1\n", `memory_gib "NaN" is not a number`},
		{"bytes for GiB", header + "a,8e9,1,1\n", "memory_gib is 8e9: expected 0 to 1.048576e+06"},
		{"half a slice", header + "a,1,0.5,1\n", `w.csv:2:5: compute_slices "0.5" is not a whole number`},
		{"no slice", header + "a,1,0,1\n", "w.csv:2:5: compute_slices is 0: expected 1 to"},
		{"negative", header + "a,1,1,-1\n", "w.csv:2:7: count is -1: expected 0 to"},
		{"no name", header + ",1,1,1\n", "w.csv:2:1: name is empty"},
		{"twice", header + "a,1,1,1\n\na,1,1,1\n", `w.csv:4:1: name "a" appears twice, first in line 2`},
		{
			"too many", header + "a,1,1,100000\nb,1,1,1\n",
			"w.csv:3:7: count brings the number of workloads above 100000",
		},
		{"a quote", header + "a,\"1,1,1\n", "w.csv:2:10: extraneous or missing \" in quoted-field"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ReadWorkloads("w.csv", strings.NewReader(tc.text))
			var fe *FileError
			if !errors.As(err, &fe) || !strings.HasPrefix(err.Error(), "w.csv:") ||
				!strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	broken := errors.New("broken")
	if _, err := ReadWorkloads("w.csv", iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if _, err := ReadWorkloads("w.csv", strings.NewReader(strings.Repeat("x", maxFile+1))); err == nil ||
		!strings.Contains(err.Error(), "over 16 MiB") {
		t.Errorf("got %v", err)
	}
}

const listing = `+-------------------------------------------------------+
| GPU instances:                                        |
| GPU   Name             Profile  Instance   Placement  |
|                          ID       ID       Start:Size |
|=======================================================|
|   0  MIG 1g.10gb         19        7          4:1     |
+-------------------------------------------------------+
|   1  MIG 3g.40gb          9        2          0:4     |
+-------------------------------------------------------+
`

func TestReadPlacements(t *testing.T) {
	fleet := fleetOf(t, "A100-80GB")
	for _, tc := range []struct {
		name, text string
		want       []Placed
		fails      string
	}{
		{
			"csv", "gpu,profile,start,workload\n0,3g.40gb,4,train\n",
			[]Placed{{GPU: "0", Model: "A100-80GB", Profile: "3g.40gb", Start: 4, Workload: "train"}}, "",
		},
		{"models", "start,gpu,model,profile,instance\n2,GPU-1,a30,2g.12gb,5\n0,0,,1g.10gb,\n", []Placed{
			{GPU: "GPU-1", Model: "A30-24GB", Profile: "2g.12gb", Start: 2, Instance: "5"},
			{GPU: "0", Model: "A100-80GB", Profile: "1g.10gb"}}, ""},
		{"listing", listing, []Placed{
			{GPU: "0", Model: "A100-80GB", Profile: "1g.10gb", Start: 4, Instance: "7"},
			{GPU: "1", Model: "A100-80GB", Profile: "3g.40gb", Instance: "2"}}, ""},
		{
			"json",
			`{"schema":"curfew.plan.mig/v1","gpus":[{"gpu":"3","model":"A30-24GB","placements":[{"profile":"1g.6gb","start":2,"size":1,"workload":"w"}]}]}`,
			[]Placed{{GPU: "3", Model: "A30-24GB", Profile: "1g.6gb", Start: 2, Workload: "w"}}, ""},
		{"header alone", "gpu,profile,start\n", nil, ""},
		{
			"unknown profile", "gpu,profile,start\n0,3g.20gb,4\n", nil,
			`p:2:3: profile "3g.20gb" is not a profile of A100-80GB`,
		},
		{"start", "gpu,profile,start\n0,3g.40gb,2\n", nil, "p:2:11: start 2 is not a start of 3g.40gb: [0 4]"},
		{"overlap", "gpu,profile,start\n0,3g.40gb,4\n0,1g.10gb,6\n", nil, "p:3:11: start 6 overlaps"},
		{
			"model changes", "gpu,profile,start,model\n0,1g.10gb,4,a100-80\n0,1g.6gb,0,a30\n", nil,
			"p:3:12: model A30-24GB: GPU 0 is a A100-80GB",
		},
		{"unknown model", "gpu,profile,start,model\n0,1g.10gb,4,T4\n", nil, "p:2:13: model look up GPU \"T4\""},
		{"no GPU", "gpu,profile,start\n,1g.10gb,4\n", nil, "p:2:1: gpu is empty"},
		{"other size", strings.Replace(listing, "0:4", "0:3", 1), nil, "p:8: 3g.40gb has size 3"},
		{"cut row", strings.Replace(listing, "19        7", "19", 1), nil, "p:6: expected GPU, MIG"},
		{"other placement", strings.Replace(listing, "4:1", "x:1", 1), nil, `p:6: placement "x:1" is not start:size`},
		{"other schema", `{"schema":"curfew.scan/v1"}`, nil, `schema "curfew.scan/v1": expected curfew.plan.mig/v1`},
		{"other key", "{\n \"gpu_count\":1}", nil, "not a plan of curfew.plan.mig/v1"},
		{
			"json overlap",
			`{"schema":"curfew.plan.mig/v1","gpus":[{"gpu":"3","placements":[{"profile":"7g.80gb"},{"profile":"1g.10gb"}]}]}`,
			nil, "p: gpus[0].placements[1]: start 0 overlaps"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ReadPlacements("p", strings.NewReader(tc.text), fleet)
			if tc.fails != "" {
				var fe *FileError
				if !errors.As(err, &fe) || !strings.Contains(err.Error(), tc.fails) {
					t.Errorf("got %v, want %q", err, tc.fails)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestParseFleet(t *testing.T) {
	for _, tc := range []struct{ text, want, fails string }{
		{"A100-80GB", "A100-80GB", ""},
		{" h100-nvl:4, A30 ", "H100-94GB:4,A30-24GB", ""},
		{"T4", "", "no known MIG geometry"},
		{"", "", "no known MIG geometry"},
		{"A30:0", "", `"0" is not a number from 1`},
		{"A30:x", "", `"x" is not a number from 1`},
		{"A30,A30-24GB", "", "A30-24GB appears twice"},
	} {
		f, err := ParseFleet(tc.text)
		if tc.fails != "" {
			if err == nil || !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("%q: %v, want %q", tc.text, err, tc.fails)
			}
		} else if err != nil || f.String() != tc.want {
			t.Errorf("%q is %q, %v; want %q", tc.text, f, err, tc.want)
		}
	}
}

// oneLine checks what every reader promises of its errors.
func oneLine(t *testing.T, err error) {
	var fe *FileError
	if !errors.As(err, &fe) || fe.Line < 0 || fe.Column < 0 || strings.Contains(err.Error(), "\n") {
		t.Fatalf("%q is no *FileError in one line", err)
	}
}

// FuzzReadWorkloads checks that what is read can be written, read back and packed.
func FuzzReadWorkloads(f *testing.F) {
	for _, s := range []string{
		"name,memory_gib,compute_slices,count\na,9.62,1,3\n",
		"count,name,compute_slices,memory_gib\r\n0,\"a,b\",2,1e-9\r\n", "name\n\"", "\xef\xbb\xbf",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ReadWorkloads("w.csv", bytes.NewReader(data))
		if err != nil {
			oneLine(t, err)
			return
		}
		var b strings.Builder
		b.WriteString("name,memory_gib,compute_slices,count\n")
		for _, w := range got {
			if err := w.check(); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "\"%s\",%v,%d,%d\n", strings.ReplaceAll(w.Name, `"`, `""`), w.MemoryGiB,
				w.ComputeSlices, w.Count)
		}
		back, err := ReadWorkloads("w.csv", strings.NewReader(b.String()))
		if diff := cmp.Diff(got, back); err != nil || diff != "" {
			t.Fatalf("%v (-read +read back):\n%s", err, diff)
		}
	})
}

// FuzzReadPlacements checks that what is read is legal and can be written down again.
func FuzzReadPlacements(f *testing.F) {
	for _, s := range []string{
		"gpu,profile,start,workload\n0,3g.40gb,4,train\n", listing,
		`{"schema":"curfew.plan.mig/v1","gpus":[{"gpu":"3","placements":[{"profile":"1g.10gb","start":2}]}]}`,
		"|  0 MIG",
	} {
		f.Add([]byte(s))
	}
	fleet := fleetOf(f, "A100-80GB")
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ReadPlacements("p", bytes.NewReader(data), fleet)
		if err != nil {
			oneLine(t, err)
			return
		}
		l, err := newLayouts(fleet)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range got {
			if column, err := l.add(p); err != nil {
				t.Fatalf("%+v: %s %v", p, column, err)
			}
		}
	})
}

// FuzzParseFleet checks that a fleet reads as it is written.
func FuzzParseFleet(f *testing.F) {
	for _, s := range []string{"A100-80GB:4,A30", "h200", ":", ",,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		fleet, err := ParseFleet(s)
		if err != nil {
			return
		}
		back, err := ParseFleet(fleet.String())
		if diff := cmp.Diff(fleet, back); err != nil || diff != "" {
			t.Fatalf("%v (-want +got):\n%s", err, diff)
		}
	})
}
