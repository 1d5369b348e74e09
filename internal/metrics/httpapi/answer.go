package httpapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Series is one series of a response. A scalar is a series without labels.
type Series struct {
	Labels map[string]string
	// Points are in time order.
	Points []Point
	// Histogram is true if the series has native histograms, which are not supported.
	Histogram bool
}

// Point is one sample.
type Point struct {
	At int64 // milliseconds since 1970
	V  float64
}

// decoder decodes one response of the API as it arrives, with one series in memory at a time.
type decoder struct {
	json *json.Decoder
	// maxSeries bounds the series of a response.
	maxSeries int
	// nonFinite keeps NaN and infinities, which are dropped otherwise.
	nonFinite bool
	each      func(Series) error
	// at is the time of the query, used for a scalar.
	at time.Time
	// resultType is empty until it was read; text holds a result that does not consist of series.
	resultType string
	text       *string
	warnings   []string
}

// decode decodes a response and passes each series on. An error response is returned as an
// *[Error].
func (d *decoder) decode() error {
	var status, kind, message string
	err := object(d.json, func(key string) error {
		switch key {
		case "status":
			return d.json.Decode(&status)
		case "errorType":
			return d.json.Decode(&kind)
		case "error":
			return d.json.Decode(&message)
		case "warnings":
			return d.json.Decode(&d.warnings)
		case "data":
			return d.data()
		}
		return skip(d.json)
	})
	switch {
	case err != nil:
		return err
	case status == "error":
		return &Error{Status: http.StatusOK, Kind: cmp.Or(kind, "unknown"), Message: message}
	case status != "success":
		return fmt.Errorf("its status is %.40q", status)
	}
	return nil
}

// data reads the result and its type, which may come in either order.
func (d *decoder) data() error {
	err := object(d.json, func(key string) error {
		switch key {
		case "resultType":
			return d.json.Decode(&d.resultType)
		case "result":
			return d.results()
		}
		return skip(d.json)
	})
	switch {
	case err != nil || d.text == nil:
		return err
	case d.resultType == "string":
		return errors.New(`unexpected value type "string"`)
	}
	v, err := strconv.ParseFloat(*d.text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return errPoint
	}
	s := Series{}
	if d.nonFinite || !math.IsNaN(v) && !math.IsInf(v, 0) {
		s.Points = []Point{{d.at.UnixMilli(), v}}
	}
	return d.each(s)
}

// skip discards a value of any size.
func skip(d *json.Decoder) error {
	for depth := 0; ; {
		t, err := d.Token()
		if err != nil {
			return err
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// object reads an object; value reads the value of a key.
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

// results reads a list of series, or the [time, "value"] of a scalar.
func (d *decoder) results() error {
	if t, err := d.json.Token(); err != nil || t != json.Delim('[') {
		return unexpected(t, err)
	}
	for n := 0; d.json.More(); n++ {
		if n == d.maxSeries {
			return fmt.Errorf("it has over %d series: %w", d.maxSeries, ErrTooLarge)
		}
		var x struct {
			Metric     map[string]string `json:"metric"`
			Values     json.RawMessage   `json:"values"`
			Value      json.RawMessage   `json:"value"`
			Histogram  json.RawMessage   `json:"histogram"`
			Histograms json.RawMessage   `json:"histograms"`
		}
		err := d.json.Decode(&x)
		var other *json.UnmarshalTypeError
		if n == 0 && errors.As(err, &other) && other.Field == "" && strings.HasPrefix(other.Value, "number") {
			if err := d.json.Decode(&d.text); err != nil { // the time equals that of the query
				return err
			}
			break
		}
		if err != nil {
			return err
		}
		s := Series{Labels: x.Metric, Histogram: x.Histogram != nil || x.Histograms != nil}
		switch {
		case x.Values != nil:
			s.Points, err = d.points(x.Values)
		case x.Value != nil:
			s.Points, err = d.points(append(append([]byte{'['}, x.Value...), ']'))
		}
		if err != nil {
			return err
		}
		if err := d.each(s); err != nil {
			return err
		}
	}
	t, err := d.json.Token()
	if err != nil || t != json.Delim(']') {
		return unexpected(t, err)
	}
	return nil
}

var errPoint = errors.New("a sample is not of the form [time, \"value\"]")

// points reads valid JSON such as [[1700000000.123,"1.5"],…]. NaN and infinities, including
// staleness markers, are dropped unless requested. Of samples with the same time the last is used;
// samples that go back in time are dropped.
func (d *decoder) points(raw []byte) ([]Point, error) {
	out := make([]Point, 0, len(raw)/22+1)
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
		if !d.nonFinite && (math.IsNaN(v) || math.IsInf(v, 0)) {
			continue
		}
		p := Point{int64(math.Round(t * 1000)), v}
		switch n := len(out); {
		case n > 0 && out[n-1].At == p.At:
			out[n-1] = p
		case n > 0 && out[n-1].At > p.At:
		default:
			out = append(out, p)
		}
	}
	return out, nil
}
