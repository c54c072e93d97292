"""A market put to the test: the lab of network namespaces, fault drills, the demo.

It stages real processes, disturbs them, and judges by their journals. Nothing here runs in production, and only
`cli` imports it.
"""
