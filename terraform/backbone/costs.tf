# What the backbone costs in a month without any session: monthly_usd. What is charged by
# use is listed by its price: by_use.

locals {
  hours_in_a_month = 730

  # The price of a key is the same in every region. Rotation adds $1 a month after the first
  # year and another after the second.
  kms_key = { usd = 1.00, unit = "key-month", source = "AWS KMS pricing", as_of = "2026-11-21" }

  rates = try(local.prices[local.region], {})

  fixed = concat(
    [{ what = "KMS key", quantity = 1, price = local.kms_key }],
    var.nat_gateway ? [
      { what = "NAT gateway", quantity = local.hours_in_a_month, price = lookup(local.rates, "nat", null) },
      { what = "public address of the NAT gateway", quantity = local.hours_in_a_month, price = lookup(local.rates, "address", null) },
    ] : [],
  )

  lines = [for l in local.fixed : {
    what        = l.what
    quantity    = l.quantity
    unit        = try(l.price.unit, null)
    unit_usd    = try(l.price.usd, null)
    monthly_usd = try(format("%.2f", l.quantity * l.price.usd), null)
    source      = try(l.price.source, "no price in ${local.region}")
    as_of       = try(l.price.as_of, null)
  }]

  # An unknown price makes the sum unknown; it is never zero.
  unpriced = [for l in local.lines : l.what if l.monthly_usd == null]
}

output "monthly_usd" {
  description = "What the backbone costs in a month of 730 hours without any session; null where a price is not known."
  value       = length(local.unpriced) > 0 ? null : format("%.2f", sum([for l in local.fixed : l.quantity * l.price.usd]))
}

output "monthly_lines" {
  description = "The lines of monthly_usd with price, source and date."
  value       = local.lines
}

output "monthly_unpriced" {
  description = "What has no price in this region, and so is in no sum."
  value       = local.unpriced
}

output "by_use" {
  description = "Prices of what is charged by use; empty where the region has no prices here. Vpc, security group, roles, parameters and the S3 endpoint cost nothing."
  value = [for name in ["s3", "s3-infrequent", "ecr", "logs-ingest", "logs-storage", "address", "nat-data"] :
    merge({ name = name }, local.rates[name]) if contains(keys(local.rates), name) && (var.nat_gateway || name != "nat-data")
  ]
}
