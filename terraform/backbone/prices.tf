# Written by go run ./test/deploy from the price book, internal/price/data/rates.csv.
locals {
  prices = {
    "ap-northeast-1" = {
      "address"       = { usd = 0.005, unit = "hour", source = "AWS public price list, all regions; entered by hand", as_of = "2026-11-21" }
      "nat"           = { usd = 0.062, unit = "hour", source = "AWS public price list, ap-northeast-1; entered by hand", as_of = "2026-11-21" }
      "nat-data"      = { usd = 0.062, unit = "GiB", source = "AWS public price list, ap-northeast-1; entered by hand", as_of = "2026-11-21" }
      "s3"            = { usd = 0.025, unit = "GiB-month", source = "AWS public price list, ap-northeast-1; entered by hand", as_of = "2026-11-21" }
      "s3-infrequent" = { usd = 0.0138, unit = "GiB-month", source = "AWS public price list, ap-northeast-1; entered by hand", as_of = "2026-11-21" }
      "ecr"           = { usd = 0.10, unit = "GiB-month", source = "AWS public price list, all regions; entered by hand", as_of = "2026-11-21" }
      "logs-ingest"   = { usd = 0.76, unit = "GiB", source = "AWS public price list, ap-northeast-1; entered by hand", as_of = "2026-11-21" }
      "logs-storage"  = { usd = 0.033, unit = "GiB-month", source = "AWS public price list, ap-northeast-1; entered by hand", as_of = "2026-11-21" }
    }
    "ap-southeast-2" = {
      "address"       = { usd = 0.005, unit = "hour", source = "AWS public price list, all regions; entered by hand", as_of = "2026-11-21" }
      "nat"           = { usd = 0.059, unit = "hour", source = "AWS public price list, ap-southeast-2; entered by hand", as_of = "2026-11-21" }
      "nat-data"      = { usd = 0.059, unit = "GiB", source = "AWS public price list, ap-southeast-2; entered by hand", as_of = "2026-11-21" }
      "s3"            = { usd = 0.025, unit = "GiB-month", source = "AWS public price list, ap-southeast-2; entered by hand", as_of = "2026-11-21" }
      "s3-infrequent" = { usd = 0.0138, unit = "GiB-month", source = "AWS public price list, ap-southeast-2; entered by hand", as_of = "2026-11-21" }
      "ecr"           = { usd = 0.10, unit = "GiB-month", source = "AWS public price list, all regions; entered by hand", as_of = "2026-11-21" }
      "logs-ingest"   = { usd = 0.67, unit = "GiB", source = "AWS public price list, ap-southeast-2; entered by hand", as_of = "2026-11-21" }
      "logs-storage"  = { usd = 0.033, unit = "GiB-month", source = "AWS public price list, ap-southeast-2; entered by hand", as_of = "2026-11-21" }
    }
    "eu-central-1" = {
      "address"       = { usd = 0.005, unit = "hour", source = "AWS public price list, all regions; entered by hand", as_of = "2026-11-21" }
      "nat"           = { usd = 0.052, unit = "hour", source = "AWS public price list, eu-central-1; entered by hand", as_of = "2026-11-21" }
      "nat-data"      = { usd = 0.052, unit = "GiB", source = "AWS public price list, eu-central-1; entered by hand", as_of = "2026-11-21" }
      "s3"            = { usd = 0.0245, unit = "GiB-month", source = "AWS public price list, eu-central-1; entered by hand", as_of = "2026-11-21" }
      "s3-infrequent" = { usd = 0.0135, unit = "GiB-month", source = "AWS public price list, eu-central-1; entered by hand", as_of = "2026-11-21" }
      "ecr"           = { usd = 0.10, unit = "GiB-month", source = "AWS public price list, all regions; entered by hand", as_of = "2026-11-21" }
      "logs-ingest"   = { usd = 0.63, unit = "GiB", source = "AWS public price list, eu-central-1; entered by hand", as_of = "2026-11-21" }
      "logs-storage"  = { usd = 0.0324, unit = "GiB-month", source = "AWS public price list, eu-central-1; entered by hand", as_of = "2026-11-21" }
    }
    "eu-west-1" = {
      "address"       = { usd = 0.005, unit = "hour", source = "AWS public price list, all regions; entered by hand", as_of = "2026-11-21" }
      "nat"           = { usd = 0.048, unit = "hour", source = "AWS public price list, eu-west-1; entered by hand", as_of = "2026-11-21" }
      "nat-data"      = { usd = 0.048, unit = "GiB", source = "AWS public price list, eu-west-1; entered by hand", as_of = "2026-11-21" }
      "s3"            = { usd = 0.023, unit = "GiB-month", source = "AWS public price list, eu-west-1; entered by hand", as_of = "2026-11-21" }
      "s3-infrequent" = { usd = 0.0125, unit = "GiB-month", source = "AWS public price list, eu-west-1; entered by hand", as_of = "2026-11-21" }
      "ecr"           = { usd = 0.10, unit = "GiB-month", source = "AWS public price list, all regions; entered by hand", as_of = "2026-11-21" }
      "logs-ingest"   = { usd = 0.57, unit = "GiB", source = "AWS public price list, eu-west-1; entered by hand", as_of = "2026-11-21" }
      "logs-storage"  = { usd = 0.03, unit = "GiB-month", source = "AWS public price list, eu-west-1; entered by hand", as_of = "2026-11-21" }
    }
    "us-east-1" = {
      "address"       = { usd = 0.005, unit = "hour", source = "AWS public price list, all regions; entered by hand", as_of = "2026-11-21" }
      "nat"           = { usd = 0.045, unit = "hour", source = "AWS public price list, us-east-1; entered by hand", as_of = "2026-11-21" }
      "nat-data"      = { usd = 0.045, unit = "GiB", source = "AWS public price list, us-east-1; entered by hand", as_of = "2026-11-21" }
      "s3"            = { usd = 0.023, unit = "GiB-month", source = "AWS public price list, us-east-1; entered by hand", as_of = "2026-11-21" }
      "s3-infrequent" = { usd = 0.0125, unit = "GiB-month", source = "AWS public price list, us-east-1; entered by hand", as_of = "2026-11-21" }
      "ecr"           = { usd = 0.10, unit = "GiB-month", source = "AWS public price list, all regions; entered by hand", as_of = "2026-11-21" }
      "logs-ingest"   = { usd = 0.50, unit = "GiB", source = "AWS public price list, us-east-1; entered by hand", as_of = "2026-11-21" }
      "logs-storage"  = { usd = 0.03, unit = "GiB-month", source = "AWS public price list, us-east-1; entered by hand", as_of = "2026-11-21" }
    }
    "us-east-2" = {
      "address"       = { usd = 0.005, unit = "hour", source = "AWS public price list, all regions; entered by hand", as_of = "2026-11-21" }
      "nat"           = { usd = 0.045, unit = "hour", source = "AWS public price list, us-east-2; entered by hand", as_of = "2026-11-21" }
      "nat-data"      = { usd = 0.045, unit = "GiB", source = "AWS public price list, us-east-2; entered by hand", as_of = "2026-11-21" }
      "s3"            = { usd = 0.023, unit = "GiB-month", source = "AWS public price list, us-east-2; entered by hand", as_of = "2026-11-21" }
      "s3-infrequent" = { usd = 0.0125, unit = "GiB-month", source = "AWS public price list, us-east-2; entered by hand", as_of = "2026-11-21" }
      "ecr"           = { usd = 0.10, unit = "GiB-month", source = "AWS public price list, all regions; entered by hand", as_of = "2026-11-21" }
      "logs-ingest"   = { usd = 0.50, unit = "GiB", source = "AWS public price list, us-east-2; entered by hand", as_of = "2026-11-21" }
      "logs-storage"  = { usd = 0.03, unit = "GiB-month", source = "AWS public price list, us-east-2; entered by hand", as_of = "2026-11-21" }
    }
    "us-west-2" = {
      "address"       = { usd = 0.005, unit = "hour", source = "AWS public price list, all regions; entered by hand", as_of = "2026-11-21" }
      "nat"           = { usd = 0.045, unit = "hour", source = "AWS public price list, us-west-2; entered by hand", as_of = "2026-11-21" }
      "nat-data"      = { usd = 0.045, unit = "GiB", source = "AWS public price list, us-west-2; entered by hand", as_of = "2026-11-21" }
      "s3"            = { usd = 0.023, unit = "GiB-month", source = "AWS public price list, us-west-2; entered by hand", as_of = "2026-11-21" }
      "s3-infrequent" = { usd = 0.0125, unit = "GiB-month", source = "AWS public price list, us-west-2; entered by hand", as_of = "2026-11-21" }
      "ecr"           = { usd = 0.10, unit = "GiB-month", source = "AWS public price list, all regions; entered by hand", as_of = "2026-11-21" }
      "logs-ingest"   = { usd = 0.50, unit = "GiB", source = "AWS public price list, us-west-2; entered by hand", as_of = "2026-11-21" }
      "logs-storage"  = { usd = 0.03, unit = "GiB-month", source = "AWS public price list, us-west-2; entered by hand", as_of = "2026-11-21" }
    }
  }
}
