"""Adds up a bill by every dimension of `curfew bill show`, independently of curfew.

    totals.py sum FILE...             prints {basis: {dimension: {key: cost}}}, costs exact
    totals.py restate SEED FILE OUT   writes the bill as its provider might restate it, or as it is for seed 0

Reads FOCUS 1.0 to 1.2 and CUR 2.0 as CSV by the definitions of the FOCUS specification and of the
AWS Data Exports User Guide ("Line item columns", "Savings Plans columns", "Reservation columns").
"""

import csv
import gzip
import io
import json
import random
import re
import sys
from collections import defaultdict
from fractions import Fraction

OWNERS = {
    "team": ["team", "squad", "group", "owner-team", "curfew:team"],
    "project": ["project", "project-name", "application", "app", "curfew:project"],
    "user": ["user", "owner", "created-by", "creator", "owner-email", "curfew:user"],
    "environment": ["environment", "env", "stage", "curfew:environment"],
    "cost_center": ["cost-center", "costcenter", "cost-centre", "billing-code", "curfew:cost-center"],
}
PRICING = {"standard": "Standard", "dynamic": "Dynamic", "committed": "Committed", "other": "Other"}


def rows(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", newline="", encoding="utf-8") as f:
        for row in csv.DictReader(f):
            yield {k: "" if v is None or v.upper() == "NULL" else v for k, v in row.items()}


def number(text):
    return Fraction(text) if text else Fraction(0)


def squeeze(key):
    return re.sub(r"[-_ :]", "", key.lower())


def owners(text):
    tags = {}
    if text.startswith("["):
        tags = {t["key"]: t["value"] for t in json.loads(text)}
    elif text.startswith('"'):
        tags = json.loads("{" + text + "}")
    elif text:
        tags = json.loads(text)
    tags = {squeeze(re.sub(r"^user[_:](?=.)", "", k)): v for k, v in tags.items()}
    found = {}
    for field, keys in OWNERS.items():
        found[field] = next((str(tags[squeeze(k)]) for k in keys if tags.get(squeeze(k))), "")
    return found


def focus(row):
    """A row of FOCUS: (dimensions, billed, effective or None where the bill does not say)."""
    pricing = row.get("PricingCategory", "")
    dims = {
        "service": row.get("ServiceName", ""),
        "sub_account": row.get("SubAccountId", ""),
        "provider": row.get("ServiceProviderName") or row.get("ProviderName", ""),
        "charge_category": row["ChargeCategory"].capitalize(),
        "region": row.get("RegionId") or row.get("RegionName", ""),
        "resource": row.get("ResourceId", ""),
        "pricing": PRICING.get(pricing.lower(), pricing),
        "commitment": row.get("CommitmentDiscountId", ""),
        "day": row["ChargePeriodStart"][:10],
    } | owners(row.get("Tags", ""))
    effective = row.get("EffectiveCost", "")
    return [(dims, number(row["BilledCost"]), number(effective) if effective else None)]


def cur(row):
    """A row of CUR 2.0 or of the legacy report: its charge, and what lay unused of a commitment."""
    tags = row.get("resource_tags") or json.dumps(
        {k[len("resource_tags_user_"):]: v for k, v in row.items() if k.startswith("resource_tags_user_") and v})
    kind = row["line_item_line_item_type"]
    plan, reserved = row.get("savings_plan_savings_plan_a_r_n", ""), row.get("reservation_reservation_a_r_n", "")
    dims = {
        "service": row["line_item_product_code"],
        "sub_account": row["line_item_usage_account_id"],
        "provider": "AWS",
        "charge_category": "Usage",
        "region": row.get("product_region_code") or row.get("product_region", ""),
        "resource": row["line_item_resource_id"],
        "pricing": "",
        "commitment": "",
        "day": row["line_item_usage_start_date"][:10],
    } | owners(tags)
    billed = effective = number(row["line_item_unblended_cost"])
    unused = None
    if kind == "Usage":
        dims["pricing"] = "Dynamic" if "SpotUsage" in row["line_item_usage_type"] else "Standard"
    elif kind == "SavingsPlanCoveredUsage":
        dims |= {"pricing": "Committed", "commitment": plan}
        billed, effective = Fraction(0), number(row["savings_plan_savings_plan_effective_cost"])
    elif kind == "SavingsPlanNegation":
        dims |= {"pricing": "Committed", "commitment": plan}
        billed = effective = Fraction(0)
    elif kind == "DiscountedUsage":
        dims |= {"pricing": "Committed", "commitment": reserved}
        effective = number(row["reservation_effective_cost"])
    elif kind == "SavingsPlanRecurringFee":
        dims |= {"charge_category": "Purchase", "commitment": plan}
        effective = Fraction(0)
        unused = (number(row["savings_plan_total_commitment_to_date"]) -
                  number(row["savings_plan_used_commitment"]))
    elif kind == "RIFee":
        dims |= {"charge_category": "Purchase", "commitment": reserved}
        effective = Fraction(0)
        unused = (number(row["reservation_unused_amortized_upfront_fee_for_billing_period"]) +
                  number(row["reservation_unused_recurring_fee"]))
    elif kind == "Tax":
        dims["charge_category"] = "Tax"
    elif kind in ("Credit", "EdpDiscount"):
        dims["charge_category"] = "Credit"
    elif kind == "Refund" and not (plan or reserved):
        dims["charge_category"] = "Credit"
    else:
        raise SystemExit(f"totals.py does not know line_item_line_item_type {kind}")
    out = [(dims, billed, effective)]
    if unused:
        out.append((dims | {"charge_category": "Usage", "pricing": "Committed"}, Fraction(0), unused))
    return out


def exact(value):
    """A fraction of a power of ten as a decimal, with all its digits."""
    digits = 0
    while (value * 10**digits).denominator != 1:
        digits += 1
    text = str(abs(value * 10**digits)).rjust(digits + 1, "0")
    return ("-" if value < 0 else "") + text[: len(text) - digits] + ("." + text[len(text) - digits:] if digits else "")


def total(paths):
    sums = {b: defaultdict(lambda: defaultdict(Fraction)) for b in ("billed", "effective")}
    lines = 0
    for path in paths:
        for row in rows(path):
            read = cur if "line_item_unblended_cost" in row else focus
            for dims, billed, effective in read(row):
                lines += 1
                for dim, key in dims.items():
                    sums["billed"][dim][key] += billed
                    if effective is not None:
                        sums["effective"][dim][key] += effective
    return {
        "lines": lines,
        "sums": {b: {d: {k: exact(v) for k, v in of.items()} for d, of in by.items()} for b, by in sums.items()},
    }


def restate(seed, path, out):
    """Drops rows, corrects costs, moves charges to another owner, day and service, and adds refunds."""
    draw = random.Random(seed)
    read = list(rows(path))
    cost = "BilledCost" if "BilledCost" in read[0] else "line_item_unblended_cost"
    tags = "Tags" if cost == "BilledCost" else "resource_tags"
    service = "ServiceName" if cost == "BilledCost" else "line_item_product_code"
    kept = []
    for row in read:
        if not seed:
            kept.append(row)
            continue
        luck = draw.random()
        if luck < 0.12 and len(read) > 3:
            continue
        if luck < 0.3:
            row[cost] = exact(number(row[cost]) * draw.randrange(1, 20000) / 10000)
        if luck > 0.8 and tags in row:
            row[tags] = json.dumps({"team": draw.choice(["vision", "speech", "Łódź"]), "env": "prod"})
        if 0.3 < luck < 0.4 and service in row:
            row[service] = draw.choice([r[service] for r in read])
        kept.append(row)
        if 0.4 < luck < 0.5:
            back = dict(row)
            back[cost] = exact(-number(row[cost]) * draw.randrange(1, 10000) / 10000)
            if "ChargeClass" in back:
                back["ChargeClass"] = "Correction"
            kept.append(back)
    with open(out, "w", newline="", encoding="utf-8") as f:
        w = csv.DictWriter(f, fieldnames=list(read[0]))
        w.writeheader()
        w.writerows(kept)


if __name__ == "__main__":
    csv.field_size_limit(1 << 24)
    if sys.argv[1] == "sum":
        sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8")
        json.dump(total(sys.argv[2:]), sys.stdout)
    else:
        restate(int(sys.argv[2]), sys.argv[3], sys.argv[4])
