"""The whole way in one command: train, carry over, measure and explain the gap, close it, train again, prove it.

course     -> what is done, as commands, each chosen by what the ones before it found; repair: what is done about a gap
steps      -> carries them out, one after the other, and never twice
story      -> what was asked for, and everything that was done
outcome    -> what came out: before, what was wrong, what was done, now
report     -> the same as one page
"""
