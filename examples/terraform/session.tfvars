session       = "ana-demo"
owner         = "AIDAEXAMPLEOFANA" # aws sts get-caller-identity --query UserId
instance_type = "g6.2xlarge"
spot          = true
lease_until   = "2999-01-01T00:00:00Z" # until when you need it

backbone = {
  backend = "s3"
  config = {
    bucket = "example-terraform-states"
    key    = "curfew/backbone.tfstate"
    region = "us-east-1"
  }
}

tags = {
  team    = "vision"
  project = "ranking"
}
