package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

const empty = `{"status":"success","data":{"resultType":"matrix","result":[]}}`

func TestDecode(t *testing.T) {
	ok := func(data string) string { return `{"status":"success","data":` + data + `}` }
	for _, tt := range []struct {
		name, text string
		nonFinite  bool
		want       string // the expected part of the error
		kind       string
		fails      string
	}{
		{"nothing", empty, false, "[]", "matrix", ""},
		{
			"a vector", ok(`{"resultType":"vector","result":[{"metric":{"a":"b"},"value":[1.5,"2"]}]}`), false,
			"[{map[a:b] [{1500 2}] false}]", "vector", "",
		},
		{
			"a matrix", ok(`{"resultType":"matrix","result":[{"metric":{},"values":[[1,"2"],[2,"3"]]}]}`), false,
			"[{map[] [{1000 2} {2000 3}] false}]", "matrix", "",
		},
		{
			"a scalar", ok(`{"resultType":"scalar","result":[1.5,"42"]}`), false, "[{map[] [{5000 42}] false}]",
			"scalar", "",
		},
		{
			"a scalar before its type", ok(`{"result":[1.5,"42"],"resultType":"scalar"}`), false,
			"[{map[] [{5000 42}] false}]", "scalar", "",
		},
		{"a text", ok(`{"resultType":"string","result":[1.5,"foo"]}`), false, "[]", "string", "unexpected value type"},
		{
			"a text before its type", ok(`{"result":[1.5,"foo"],"resultType":"string"}`), false, "[]", "string",
			"unexpected value type",
		},
		{
			"a histogram",
			ok(
				`{"resultType":"vector","result":[{"metric":{},"histogram":[1,{"count":"60","buckets":[[0,"1","2","3"]]}]}]}`),
			false, "[{map[] [] true}]", "vector", "",
		},
		{
			"NaN is no sample",
			ok(`{"resultType":"matrix","result":[{"metric":{},"values":[[1,"NaN"],[2,"+Inf"],[3,"1"]]}]}`), false,
			"[{map[] [{3000 1}] false}]", "matrix", "",
		},
		{
			"NaN that is asked for", ok(`{"resultType":"vector","result":[{"metric":{},"value":[1,"NaN"]}]}`), true,
			"[{map[] [{1000 NaN}] false}]", "vector", "",
		},
		{
			"unknown fields of any depth",
			`{"new":{"a":[1,[2,{"b":null}]]},"status":"success","data":{"stats":[[[]]],"resultType":"vector","result":[]},"infos":["x"]}`,
			false, "[]", "vector", "",
		},
		{
			"too many series", ok(`{"result":[{"metric":{}},{"metric":{}},{"metric":{}},{"metric":{}}]}`), false, "",
			"",
			"too large",
		},
		{"a scalar of three", ok(`{"result":[1,"2","3"]}`), false, "", "", "not expected"},
		{
			"a scalar that is no number", ok(`{"resultType":"scalar","result":[1,"x"]}`), false, "[]", "scalar",
			"not of the form",
		},
		{"cut off", ok(`{"result":[{"metric":{},"val`)[:50], false, "", "", "unexpected EOF"},
		{"an error", `{"status":"error","errorType":"execution","error":"no"}`, false, "[]", "", "no"},
		{"another status", `{"status":"maybe"}`, false, "[]", "", `its status is "maybe"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []Series
			d := &decoder{
				json: json.NewDecoder(strings.NewReader(tt.text)), maxSeries: 3, nonFinite: tt.nonFinite,
				at: time.UnixMilli(5000),
			}
			d.each = func(s Series) error { got = append(got, s); return nil }
			err := d.decode()
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("decode = %v, want %q", err, tt.fails)
				}
				return
			}
			if err != nil || fmt.Sprint(got) != tt.want || d.resultType != tt.kind {
				t.Errorf("decode = %v of type %q, %v; want %s", got, d.resultType, err, tt.want)
			}
		})
	}
}

func TestDecodeReportsWarnings(t *testing.T) {
	d := &decoder{
		json: json.NewDecoder(strings.NewReader(`{"warnings":["a","b"],"status":"success"}`)),
		each: func(Series) error { return nil },
	}
	if err := d.decode(); err != nil || !slices.Equal(d.warnings, []string{"a", "b"}) {
		t.Errorf("decode = %v, warnings %v", err, d.warnings)
	}
}

func TestDecodeStopsOnVisitorError(t *testing.T) {
	enough := errors.New("enough")
	d := &decoder{
		json: json.NewDecoder(strings.NewReader(`{"data":{"result":[{"metric":{}},{"metric":{}}]}}`)), maxSeries: 9,
		each: func(Series) error { return enough },
	}
	if err := d.decode(); !errors.Is(err, enough) {
		t.Errorf("decode = %v", err)
	}
}

// FuzzDecode checks that every response decodes to numbers in time order or returns an error.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		empty,
		`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":"b"},"values":[[1700000000,"0"],[1700000060,"1"]]}]}}`,
		`{"status":"success","data":{"result":[{"value":[1,"2"]}]}}`,
		`{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}`,
		`{"status":"error","error":"x"}`,
		`{"data":{"result":[{"values":[[1,"NaN"],[0,"1"],[2,"-Inf"]]}]},"status":"success"}`,
		`[[`,
		`{"data":[]}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d := &decoder{json: json.NewDecoder(strings.NewReader(text)), maxSeries: 1000, each: func(x Series) error {
			for i, p := range x.Points {
				if math.IsNaN(p.V) || math.IsInf(p.V, 0) || i > 0 && p.At <= x.Points[i-1].At {
					t.Errorf("points are %v", x.Points)
				}
			}
			return nil
		}}
		_ = d.decode()
	})
}
