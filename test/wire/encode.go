package wire

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/aws/smithy-go/encoding/cbor"
)

// decodeCBOR decodes an rpc-v2-cbor body into plain values: int64, float64, string, bool, []byte,
// time.Time, []any, map[string]any.
func decodeCBOR(b []byte) (map[string]any, error) {
	if len(b) == 0 {
		return map[string]any{}, nil
	}
	v, err := cbor.Decode(b)
	if err != nil {
		return nil, err
	}
	plain, err := fromCBOR(v)
	if err != nil {
		return nil, err
	}
	m, ok := plain.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the body is a %T, want a map", plain)
	}
	return m, nil
}

func fromCBOR(v cbor.Value) (any, error) {
	switch v := v.(type) {
	case cbor.Uint:
		if v > math.MaxInt64 {
			return nil, fmt.Errorf("the integer %d is out of range", v)
		}
		return int64(v), nil
	case cbor.NegInt:
		return cbor.AsInt64(v)
	case cbor.Slice:
		return []byte(v), nil
	case cbor.String:
		return string(v), nil
	case cbor.Bool:
		return bool(v), nil
	case cbor.Float32:
		return float64(v), nil
	case cbor.Float64:
		return float64(v), nil
	case *cbor.Nil, *cbor.Undefined:
		return nil, nil
	case *cbor.Tag:
		t, err := cbor.AsTime(v)
		return t.UTC(), err
	case cbor.List:
		out := make([]any, len(v))
		for i := range v {
			x, err := fromCBOR(v[i])
			if err != nil {
				return nil, err
			}
			out[i] = x
		}
		return out, nil
	case cbor.Map:
		out := make(map[string]any, len(v))
		for k := range v {
			x, err := fromCBOR(v[k])
			if err != nil {
				return nil, err
			}
			out[k] = x
		}
		return out, nil
	}
	return nil, fmt.Errorf("a CBOR value of type %T is not expected here", v)
}

// encodePlain encodes plain values as CBOR.
func encodePlain(v any) []byte { return cbor.Encode(toCBOR(v)) }

func toCBOR(v any) cbor.Value {
	switch v := v.(type) {
	case nil:
		return &cbor.Nil{}
	case bool:
		return cbor.Bool(v)
	case int:
		return toCBOR(int64(v))
	case int64:
		if v < 0 {
			return cbor.NegInt(-v)
		}
		return cbor.Uint(v)
	case float64:
		return cbor.Float64(v)
	case string:
		return cbor.String(v)
	case []byte:
		return cbor.Slice(v)
	case time.Time:
		return &cbor.Tag{ID: 1, Value: cbor.Float64(seconds(v))}
	case []string:
		out := make(cbor.List, len(v))
		for i, s := range v {
			out[i] = cbor.String(s)
		}
		return out
	case []float64:
		out := make(cbor.List, len(v))
		for i, f := range v {
			out[i] = cbor.Float64(f)
		}
		return out
	case []time.Time:
		out := make(cbor.List, len(v))
		for i, t := range v {
			out[i] = toCBOR(t)
		}
		return out
	case []any:
		out := make(cbor.List, len(v))
		for i := range v {
			out[i] = toCBOR(v[i])
		}
		return out
	case map[string]any:
		out := make(cbor.Map, len(v))
		for k := range v {
			out[k] = toCBOR(v[k])
		}
		return out
	}
	panic(fmt.Sprintf("wire: no CBOR for a %T", v))
}

// encodeJSON encodes plain values; times are seconds since 1970, as in the AWS JSON protocols.
func encodeJSON(v any) []byte {
	b, err := json.Marshal(jsonable(v))
	if err != nil {
		panic(fmt.Sprintf("wire: no JSON for a %T: %v", v, err))
	}
	return b
}

func jsonable(v any) any {
	switch v := v.(type) {
	case time.Time:
		return seconds(v)
	case []time.Time:
		out := make([]any, len(v))
		for i, t := range v {
			out[i] = seconds(t)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = jsonable(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k := range v {
			out[k] = jsonable(v[k])
		}
		return out
	}
	return v
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// asTime converts a timestamp of the json and cbor protocols.
func asTime(v any) (time.Time, bool) {
	switch v := v.(type) {
	case time.Time:
		return v, true
	case json.Number:
		f, err := v.Float64()
		return fromSeconds(f), err == nil
	case float64:
		return fromSeconds(v), true
	case int64:
		return time.Unix(v, 0).UTC(), true
	case string:
		t, err := time.Parse(time.RFC3339, v)
		return t.UTC(), err == nil
	}
	return time.Time{}, false
}

func fromSeconds(f float64) time.Time {
	return time.UnixMilli(int64(math.Round(f * 1000))).UTC()
}

// asFloat converts a number of the json and cbor protocols.
func asFloat(v any) (float64, bool) {
	switch v := v.(type) {
	case json.Number:
		f, err := v.Float64()
		return f, err == nil
	case float64:
		return v, true
	case int64:
		return float64(v), true
	}
	return 0, false
}

func asInt(v any, otherwise int) int {
	if f, ok := asFloat(v); ok {
		return int(f)
	}
	return otherwise
}

func asString(v any) string { s, _ := v.(string); return s }

func asList(v any) []any { l, _ := v.([]any); return l }

func asMap(v any) map[string]any { m, _ := v.(map[string]any); return m }
