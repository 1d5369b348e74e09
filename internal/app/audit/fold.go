package audit

import (
	"context"

	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
)

// foldTransactions bounds the short transactions of one pass.
const foldTransactions = 20

// FoldLedger folds a part of the ledger of the accounts of a pass, and reports whether more is left to
// be folded.
func FoldLedger(ctx context.Context, s *store.Store, r *round.Result) (more bool, err error) {
	folder, ok := s.Ledger().(ledger.Folder)
	if !ok {
		return false, nil
	}
	for _, id := range r.Accounts {
		f, err := folder.Fold(ctx, ledger.Account{Cloud: r.Cloud, ID: id}, r.StartedAt, foldTransactions)
		if err != nil {
			return more, err
		}
		more = more || f.More
	}
	return more, nil
}
