package protocol

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
)

// unquote decodes a string of JSON.
func unquote(raw []byte) (string, error) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", malformed("%.64q is not a string", raw)
	}
	return s, nil
}

// datatype is the range of one datatype of tensors.
type datatype struct {
	kind     byte // 'b' bool, 'i' integer, 'f' floating point, 's' bytes
	low      int64
	high     uint64
	unsigned bool
}

// datatypes are those of the Open Inference Protocol.
var datatypes = map[string]datatype{
	"BOOL":  {kind: 'b'},
	"UINT8": {kind: 'i', high: 1<<8 - 1, unsigned: true}, "UINT16": {kind: 'i', high: 1<<16 - 1, unsigned: true},
	"UINT32": {kind: 'i', high: 1<<32 - 1, unsigned: true}, "UINT64": {kind: 'i', high: 1<<64 - 1, unsigned: true},
	"INT8": {kind: 'i', low: -1 << 7, high: 1<<7 - 1}, "INT16": {kind: 'i', low: -1 << 15, high: 1<<15 - 1},
	"INT32": {kind: 'i', low: -1 << 31, high: 1<<31 - 1}, "INT64": {kind: 'i', low: -1 << 63, high: 1<<63 - 1},
	"FP16": {kind: 'f'}, "FP32": {kind: 'f'}, "FP64": {kind: 'f'}, "BF16": {kind: 'f'}, "BYTES": {kind: 's'},
}

// harmless reports whether a server that reads an element of the datatype cannot fail at it: an
// element that a parser might refuse must not share a batch with those of other callers.
func (d datatype) harmless(element []byte) bool {
	switch first := element[0]; d.kind {
	case 'b':
		return first == 't' || first == 'f'
	case 's':
		return first == '"' && pairedSurrogates(element)
	case 'f':
		return plainNumber(element)
	default:
		return d.holds(element)
	}
}

// holds reports whether an integer is in the range of the datatype.
func (d datatype) holds(element []byte) bool {
	if len(element) < 3 { // one digit, or two characters that every type but an unsigned one holds
		return element[0]-'0' < 10 && (len(element) == 1 || element[1]-'0' < 10) ||
			element[0] == '-' && len(element) == 2 && !d.unsigned
	}
	if d.unsigned {
		v, err := strconv.ParseUint(string(element), 10, 64)
		return err == nil && v <= d.high
	}
	v, err := strconv.ParseInt(string(element), 10, 64)
	return err == nil && v >= d.low && (v < 0 || uint64(v) <= d.high)
}

// plainNumber reports whether a value is a number whose size no parser refuses.
func plainNumber(b []byte) bool {
	if b[0] != '-' && b[0]-'0' >= 10 || len(b) > 64 {
		return false
	}
	exponent := bytes.IndexAny(b, "eE")
	if exponent < 0 {
		exponent = len(b)
	}
	// 38 is the largest exponent of a float32, and digits before the point add to it.
	power := 0
	if exponent < len(b) {
		var err error
		if power, err = strconv.Atoi(string(b[exponent+1:])); err != nil {
			return false
		}
	}
	whole := bytes.IndexByte(b, '.')
	if whole < 0 || whole > exponent {
		whole = exponent
	}
	return power+whole <= 38 && power >= -300
}

// pairedSurrogates reports whether every escaped surrogate of a string is half of a pair.
func pairedSurrogates(raw []byte) bool {
	unit := func(i int) (rune, bool) {
		if i+6 > len(raw) || raw[i] != '\\' || raw[i+1] != 'u' {
			return 0, false
		}
		v, err := strconv.ParseUint(string(raw[i+2:i+6]), 16, 32)
		return rune(v), err == nil
	}
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		r, ok := unit(i)
		switch {
		case !ok:
			i++
		case utf16.IsSurrogate(r):
			low, paired := unit(i + 6)
			if !paired || utf16.DecodeRune(r, low) == '\ufffd' {
				return false
			}
			i += 11
		default:
			i += 5
		}
	}
	return true
}

// appendMember appends a member of an object.
func appendMember(b []byte, name string, value []byte) []byte {
	key, _ := json.Marshal(name) // a string has no error
	return append(append(append(b, key...), ':'), value...)
}
