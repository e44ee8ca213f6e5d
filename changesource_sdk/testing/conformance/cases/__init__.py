"""The cases, by what they are about; `suite` lists them."""
