package aws

import (
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// reach is the degree to which enabled lifecycle rules move an object out of the standard class or
// expire it.
type reach int

const (
	untouched reach = iota
	// perhaps: matched only by rules restricted by tags or dates, which a listing does not show
	perhaps
	reached
)

// reaching is one enabled rule that moves or expires objects by age.
type reaching struct {
	prefix        string
	greater, less int64 // sizes in bytes; 0 for no bound
	perhaps       bool
}

// reachingRules returns the rules that move or expire current objects, not those that only abort
// uploads or expire noncurrent versions.
func reachingRules(rules []types.LifecycleRule) []reaching {
	var out []reaching
	for _, r := range rules {
		if r.Status != types.ExpirationStatusEnabled {
			continue
		}
		x := reaching{prefix: awssdk.ToString(r.Prefix)} //nolint:staticcheck // rules of before 2016 have it here
		acts := false
		for _, t := range r.Transitions {
			acts, x.perhaps = true, x.perhaps || t.Date != nil
		}
		if e := r.Expiration; e != nil && (e.Days != nil || e.Date != nil) {
			acts, x.perhaps = true, x.perhaps || e.Date != nil
		}
		if !acts {
			continue
		}
		if f := r.Filter; f != nil {
			x.prefix = firstOf(awssdk.ToString(f.Prefix), x.prefix)
			x.greater, x.less = awssdk.ToInt64(f.ObjectSizeGreaterThan), awssdk.ToInt64(f.ObjectSizeLessThan)
			x.perhaps = x.perhaps || f.Tag != nil
			if a := f.And; a != nil {
				x.prefix = firstOf(awssdk.ToString(a.Prefix), x.prefix)
				x.greater, x.less = awssdk.ToInt64(a.ObjectSizeGreaterThan), awssdk.ToInt64(a.ObjectSizeLessThan)
				x.perhaps = x.perhaps || len(a.Tags) > 0
			}
		}
		out = append(out, x)
	}
	return out
}

// reaches returns the reach of the rules for an object in the standard class.
func reaches(rules []reaching, key string, size int64) reach {
	how := untouched
	for i := range rules {
		r := &rules[i]
		if !strings.HasPrefix(key, r.prefix) || (r.greater > 0 && size <= r.greater) ||
			(r.less > 0 && size >= r.less) {
			continue
		}
		if !r.perhaps {
			return reached
		}
		how = perhaps
	}
	return how
}
