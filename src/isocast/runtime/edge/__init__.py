"""The tape for those who have other decoders or little bandwidth: gateways, and the narrow stripes."""
