package prom

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
)

// series is one series of an answer.
type series struct {
	labels map[string]string
	points []point
}

// point is one sample.
type point struct {
	at int64 // milliseconds since 1970
	v  float64
}

// decode reads an answer of the API while it comes in and hands each its series, one at a
// time, and warn what the server warns of.
func decode(r io.Reader, each func(series) error, warn func(string)) error {
	d := json.NewDecoder(r)
	var status string
	said := apiError{}
	err := object(d, func(key string) error {
		switch key {
		case "status":
			return d.Decode(&status)
		case "errorType":
			return d.Decode(&said.kind)
		case "error":
			return d.Decode(&said.message)
		case "warnings":
			var warnings []string
			err := d.Decode(&warnings)
			for _, w := range warnings {
				warn(w)
			}
			return err
		case "data":
			return object(d, func(key string) error {
				if key != "result" {
					return skip(d)
				}
				return results(d, each)
			})
		}
		return skip(d)
	})
	switch {
	case err != nil:
		return err
	case status == "error":
		return &said
	case status != "success":
		return fmt.Errorf("its status is %.40q", status)
	}
	return nil
}

func skip(d *json.Decoder) error {
	var v json.RawMessage
	return d.Decode(&v)
}

// object reads an object; value reads what is behind a key.
func object(d *json.Decoder, value func(key string) error) error {
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return unexpected(t, err)
	}
	for d.More() {
		t, err := d.Token()
		key, ok := t.(string)
		if err != nil || !ok {
			return unexpected(t, err)
		}
		if err := value(key); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

func unexpected(t json.Token, err error) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%.40v is not expected there", t)
}

// results reads the list of series.
func results(d *json.Decoder, each func(series) error) error {
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return unexpected(t, err)
	}
	for n := 0; d.More(); n++ {
		if n == maxSeries {
			return fmt.Errorf("it has over %d series: %w", maxSeries, errTooMuch)
		}
		var x struct {
			Metric map[string]string `json:"metric"`
			Values json.RawMessage   `json:"values"`
			Value  json.RawMessage   `json:"value"`
		}
		if err := d.Decode(&x); err != nil {
			return err
		}
		s := series{labels: x.Metric}
		var err error
		switch {
		case x.Values != nil:
			s.points, err = points(x.Values)
		case x.Value != nil:
			s.points, err = points(append(append([]byte{'['}, x.Value...), ']'))
		}
		if err != nil {
			return err
		}
		if err := each(s); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

var errPoint = errors.New("a sample is not of the form [time, \"value\"]")

// points reads [[1700000000.123,"1.5"],…], valid JSON. NaN and infinities, markers of
// staleness among them, are no samples. Of samples with the same time the last counts;
// those that go back in time are left out.
func points(raw []byte) ([]point, error) {
	out := make([]point, 0, len(raw)/22+1)
	word := func() []byte {
		for len(raw) > 0 && (raw[0] == ' ' || raw[0] == '\n' || raw[0] == '\t' || raw[0] == '\r' || raw[0] == '"') {
			raw = raw[1:]
		}
		i := 0
		for i < len(raw) && raw[i] != ',' && raw[i] != ']' && raw[i] != '"' && raw[i] != ' ' && raw[i] != '[' {
			i++
		}
		w := raw[:i]
		raw = raw[i:]
		return w
	}
	until := func(c byte) bool {
		for len(raw) > 0 {
			b := raw[0]
			raw = raw[1:]
			if b == c {
				return true
			}
			if b == ']' && c != ']' {
				return false
			}
		}
		return false
	}
	if !until('[') {
		return nil, errPoint
	}
	for until('[') {
		t, err := strconv.ParseFloat(string(word()), 64)
		if err != nil || !(t >= 0 && t < 1e11) || !until(',') {
			return nil, errPoint
		}
		v, err := strconv.ParseFloat(string(word()), 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) || !until(']') {
			return nil, errPoint
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		p := point{int64(math.Round(t * 1000)), v}
		switch n := len(out); {
		case n > 0 && out[n-1].at == p.at:
			out[n-1] = p
		case n > 0 && out[n-1].at > p.at:
		default:
			out = append(out, p)
		}
	}
	return out, nil
}
