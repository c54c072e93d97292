"""A market put to the test: the lab of network namespaces, fault drills, the demo. Nothing here runs in production."""
