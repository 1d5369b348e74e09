package costs_test

import (
	"context"
	"time"

	"github.com/curfew-dev/curfew/internal/ledger"
)

var (
	ctx     = context.Background()
	account = ledger.Account{Cloud: "aws", ID: "1"}
	start   = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
)
