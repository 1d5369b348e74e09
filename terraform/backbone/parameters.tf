# What curfew reads before it launches a session. docs/terraform.md is the contract; a test compares the names.

locals {
  machine_subnets = var.nat_gateway ? aws_subnet.private : aws_subnet.public

  parameters = {
    "/curfew/backbone/version"          = local.contract
    "/curfew/backbone/bucket"           = aws_s3_bucket.this["sessions"].id
    "/curfew/backbone/subnets"          = join(",", [for zone in local.zones : "${local.machine_subnets[zone].id}=${zone}"])
    "/curfew/backbone/security-group"   = aws_security_group.sessions.id
    "/curfew/backbone/machine-policy"   = aws_iam_policy.machine.arn
    "/curfew/backbone/log-group"        = aws_cloudwatch_log_group.this["sessions"].name
    "/curfew/backbone/kms-key"          = aws_kms_key.logs.arn
    "/curfew/backbone/session-document" = aws_ssm_document.session.name
  }
}

resource "aws_ssm_parameter" "this" {
  for_each = local.parameters

  name  = each.key
  type  = "String"
  tier  = "Standard"
  value = each.value
  tags  = local.tags
}
