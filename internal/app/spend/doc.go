// Package spend reports what was spent and what may be spent: costs, unit costs, shares, bills,
// budgets and reservations.
package spend
