package cli

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
)

// policyFlags are the flags by which a command prints an IAM policy instead of running.
type policyFlags struct {
	print     bool
	partition string
}

// add adds the flags; what describes the purpose of the policy.
func (f *policyFlags) add(fl *pflag.FlagSet, what string) {
	fl.BoolVar(&f.print, "print-iam-policy", false, "print the IAM policy "+what+", and do nothing else")
	fl.StringVar(&f.partition, "partition", "",
		"with --print-iam-policy: the `partition` of AWS that its ARNs are in, such as aws-cn or aws-us-gov "+
			"(default: that of the regions)")
}

// check refuses flags that only make sense when a policy is printed.
func (f *policyFlags) check() error {
	if f.partition != "" && !f.print {
		return usageError("--partition is for --print-iam-policy")
	}
	return nil
}

// in returns the partition that the policy is for: the one that was named, else that of the
// regions that a flag or the configuration names.
func (f *policyFlags) in(flagged, configured []string) (string, error) {
	if f.partition != "" {
		if known := clouds.Partitions(); !slices.Contains(known, f.partition) {
			return "", usageError("--partition %q: AWS has no such partition; it has %s", f.partition,
				strings.Join(known, ", "))
		}
		return f.partition, nil
	}
	regions := configured
	if len(flagged) > 0 {
		regions = flagged
	}
	partition, err := clouds.PartitionOf(regions)
	if err != nil {
		return "", runtime.Invalid("print the IAM policy: %w; --partition names the one that is meant", err)
	}
	return partition, nil
}

// bucketName is the form of a bucket's name (Amazon S3 User Guide, "General purpose bucket naming
// rules"), which has no wildcard.
var bucketName = lazyregexp.New(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

// checkBuckets refuses a text that is not the name of one bucket.
func checkBuckets(names []string, print bool) error {
	if len(names) > 0 && !print {
		return usageError("--bucket is for --print-iam-policy")
	}
	for _, name := range names {
		if !bucketName.MatchString(name) {
			return usageError("--bucket %q: it is the name of one bucket, such as training-data", name)
		}
	}
	return nil
}
