package plan

import (
	"errors"
	"strings"
	"testing"
)

var layout = Layout{Required: []Column{{Name: "name"}, {Name: "count"}}, Optional: []Column{{Name: "price"}}}

type line struct {
	name  string
	count int64
	price string
}

func read(text string, l Layout) ([]line, error) {
	var out []line
	err := ReadCSV("w.csv", strings.NewReader(text), l, func(r Row) error {
		name, err := r.Name("name")
		if err != nil {
			return err
		}
		n, err := r.Int("count", 0, 100)
		if err != nil {
			return err
		}
		price := ""
		if r.Text("price") != "" {
			v, err := r.Amount("price")
			if err != nil {
				return err
			}
			price = v.String()
		}
		if name == "odd" {
			return errors.New("odd is not wanted")
		}
		out = append(out, line{name, n, price})
		return nil
	})
	return out, err
}

func TestReadCSV(t *testing.T) {
	got, err := read("\ufeffcount,name,price\n 3 , a ,$1.50\n4,b,\n", layout)
	if err != nil || len(got) != 2 || got[0] != (line{"a", 3, "1.50"}) && got[0] != (line{"a", 3, "1.5"}) ||
		got[1] != (line{"b", 4, ""}) {
		t.Errorf("got %+v, %v", got, err)
	}
	mapped := layout
	mapped.Map = map[string]string{"name": "pod"}
	if got, err := read("pod,count\na,1\n", mapped); err != nil || got[0].name != "a" {
		t.Errorf("mapped: got %+v, %v", got, err)
	}
	passing := layout
	passing.Others = true
	if got, err := read("name,count,else\na,1,x\n", passing); err != nil || len(got) != 1 {
		t.Errorf("others: got %+v, %v", got, err)
	}
}

func TestMistakesHaveTheirPlace(t *testing.T) {
	for _, tc := range []struct {
		name, text, want string
		l                Layout
	}{
		{"empty", "", "w.csv: empty file: expected a header with name,count", layout},
		{"missing column", "name\na\n", `w.csv:1: column "count" is missing`, layout},
		{"unknown column", "name,count,x\n", `w.csv:1:12: unknown column "x"; expected name, count, price`, layout},
		{"column twice", "name,count,name\n", `w.csv:1:12: column "name" appears twice`, layout},
		{"no number", "name,count\na,ten\n", `w.csv:2:3: count "ten" is not a whole number`, layout},
		{"out of range", "name,count\na,101\n", `w.csv:2:3: count is 101: expected 0 to 100`, layout},
		{"no name", "name,count\n,1\n", `w.csv:2:1: name is empty`, layout},
		{"negative price", "name,count,price\na,1,-2\n", `w.csv:2:5: price is negative`, layout},
		{"no price", "name,count,price\na,1,NaN\n", `w.csv:2:5: price "NaN" is not an amount of dollars`, layout},
		{"ragged", "name,count\na\n", `w.csv:2:1: wrong number of fields`, layout},
		{"quote", "name,count\n\"a,1\n", "w.csv:2:6: extraneous or missing \" in quoted-field", layout},
		{"of the caller", "name,count\nodd,1\n", "w.csv:2: odd is not wanted", layout},
		{"mapping nothing", "name,count\n", `w.csv: no column "x" to map; the columns are name, count, price`,
			Layout{Required: layout.Required, Optional: layout.Optional, Map: map[string]string{"x": "y"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := read(tc.text, tc.l)
			var file *FileError
			if !errors.As(err, &file) || err.Error() != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

func FuzzReadCSV(f *testing.F) {
	for _, s := range []string{"", "name,count\na,1\n", "\"", "name,count,price\na,1,0.1\n", "name,name\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := read(s, layout)
		var file *FileError
		if err != nil && !errors.As(err, &file) {
			t.Fatalf("%v is not a *FileError", err)
		}
		for _, l := range got {
			if l.name == "" || l.count < 0 || l.count > 100 {
				t.Fatalf("%q passed as %+v", s, l)
			}
		}
	})
}

// TestRecordsAreBounded checks that a file without line ends is refused before it is in memory.
func TestRecordsAreBounded(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("n", 4<<20), "name,count\na,1\n" + strings.Repeat("n", 4<<20),
		"name,count\n\"" + strings.Repeat("n\n", 4<<20),
	} {
		if _, err := read(text, layout); err == nil ||
			!strings.Contains(err.Error(), "w.csv: the file cannot be read: a record is over 1048576 bytes long") {
			t.Errorf("got %.100v", err)
		}
	}
}
