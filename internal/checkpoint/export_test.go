package checkpoint

// What tests of hostile documents need to write them.
var (
	EncodeManifest = encodeManifest
	EncodeHead     = encodeHead
)

// Key returns the key of a manifest whose stored bytes are data.
func (m *Manifest) Key(data []byte) string {
	return manifestKey{seq: m.Seq, attempt: m.Attempt, sum: hash(data), rank: -1}.String()
}

// ExpandBase is the size that every manifest may have uncompressed.
const ExpandBase = expandBase
