"""What does the extract worker find? Generated sessions with gold, scripted policies, scores.

`generate` plants facts in sessions and keeps the gold; `policies` explore them through the real
runner and see nothing but what its tools show; `scores` compares what was staged with the gold.
"""
