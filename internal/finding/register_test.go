package finding_test

import (
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/finding/aws"
)

func init() { finding.Register(aws.Rules()) }
